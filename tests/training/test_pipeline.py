"""Runs of recipes in their folders: what is done again, and what is not."""

import json
import os
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tercet import Encoder, SettingError
from tercet.data.feeding import sources
from tercet.data.reading.entries import Entry
from tercet.evaluation.evaluate import evaluate
from tercet.training.objectives.contrast import Contrast
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.stages import stage
from tercet.training.unchanged import look


@pytest.fixture
def run(tmp_path, tiny):
    """Return a function that runs a recipe of one stage, which starts from `tmp_path / "start"`."""
    tiny("bert", readout="mean").save(tmp_path / "start")
    (tmp_path / "rows.tsv").write_text("anchor\tpositive\n" + "".join(f"A man {i}\tDogs {i}\n" for i in range(8)))
    stage = {"rows": str(tmp_path / "rows.tsv"), "batch": 4, "steps": 2, "learning_rate": 1e-3}
    content = {"start": str(tmp_path / "start"), "stages": [{"name": "a", "contrast": stage}]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))

    def go(*changes, **more):
        recipe = read_recipe(tmp_path / "recipe.yaml", changes=changes)
        return run_recipe(recipe, tmp_path / "run", force=True, **more)

    return go


def test_the_time_of_a_stage_is_that_of_all_its_attempts_and_is_known_when_it_is_skipped(run, tmp_path, monkeypatch):
    step, num = Contrast.step, [0]

    def stop(self, batch):
        num[0] += 1
        if num[0] == 2:
            raise KeyboardInterrupt
        return step(self, batch)

    monkeypatch.setattr(Contrast, "step", stop)
    with pytest.raises(KeyboardInterrupt):
        run()
    waiting = tmp_path / "run" / "stages" / "01-a" / "time.json"
    first_s = json.loads(waiting.read_text())["time_s"]
    waiting.write_text(json.dumps({"time_s": first_s + 1_000}))
    time_s = run().stages[0].time_s
    assert 0 < first_s and 1_000 + first_s < time_s < 2_000
    assert not waiting.exists()
    assert is_skipped(again := run()) and again.stages[0].time_s == time_s
    other = run("stages.a.steps=3").stages[0]
    assert other.time_s < 1_000


def is_skipped(result):
    return result.stages[0].skipped


def test_a_start_that_was_converted_from_pickles_is_the_same_start(run, tmp_path):
    (tmp_path / "start" / "SHA256SUMS").unlink()
    weights = tmp_path / "start" / "model.safetensors"
    torch.save(load_file(weights), tmp_path / "start" / "pytorch_model.bin")
    weights.unlink()
    assert not is_skipped(run("convert_pickle=true"))
    assert weights.exists()
    assert is_skipped(run("convert_pickle=true"))
    torch.save({name: w + 1 for name, w in load_file(weights).items()}, tmp_path / "start" / "pytorch_model.bin")
    assert not is_skipped(run("convert_pickle=true"))


def test_a_start_is_the_same_whatever_other_programs_keep_beside_it(run, tmp_path):
    run()
    (tmp_path / "start" / "README.md").write_text("What it is.")
    (tmp_path / "start" / "pytorch_model.bin").write_bytes(b"")
    assert is_skipped(run())
    weights = tmp_path / "start" / "model.safetensors"
    (tmp_path / "start" / "SHA256SUMS").unlink()
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert not is_skipped(run())


def test_a_tokenizer_is_the_same_with_weights_beside_it(run, tmp_path):
    changes = ["start=random:bert-tiny", f"tokenizer={tmp_path}/words", 'encoder={"readout": "mean"}']
    shutil.copytree(tmp_path / "start", tmp_path / "words")
    (tmp_path / "words" / "model.safetensors").unlink()
    run(*changes)
    shutil.copy(tmp_path / "start" / "model.safetensors", tmp_path / "words")
    assert is_skipped(run(*changes))


def test_another_file_to_select_by_is_another_input(run, tmp_path):
    file = tmp_path / "dev.tsv"
    rows = [f"A man {i}\tDogs {i}\t{i % 3}\n" for i in range(6)]
    file.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
    changes = ["stages.a.evaluate.task=scored:" + str(file), "stages.a.evaluate.every=1"]
    assert not is_skipped(run(*changes))
    assert is_skipped(run(*changes))
    file.write_text("sentence1\tsentence2\tscore\n" + "".join(rows[1:]))
    assert not is_skipped(run(*changes))


def test_several_tasks_select_by_the_mean_of_their_scores(run, tmp_path):
    names = []
    for name, scores in (("up", range(6)), ("down", range(6, 0, -1))):
        file = tmp_path / f"{name}.tsv"
        rows = [f"A man {i}\tDogs {i * i}\t{score}\n" for i, score in enumerate(scores)]
        file.write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
        names.append(f"scored:{file}")
    changes = [f"stages.a.evaluate.task={','.join(names)}", "stages.a.evaluate.every=1"]
    assert not is_skipped(run(*changes))
    lines = map(json.loads, next(tmp_path.rglob("metrics.jsonl")).read_text().splitlines())
    scored = [line for line in lines if "dev" in line]
    assert scored and all([*line["scores"]] == names and abs(line["dev"]) < 1e-9 for line in scored)
    assert is_skipped(run(*changes))
    file.write_text(file.read_text() + "A man\tDogs\t1\n")
    assert not is_skipped(run(*changes))


def test_a_task_whose_data_was_missing_is_scored_when_it_has_come(run, tmp_path):
    def go():
        return run('evaluate=["STSB"]', data=tmp_path / "eval").results

    file = tmp_path / "eval" / "senteval" / "STS" / "STSBenchmark" / "sts-test.csv"
    file.parent.mkdir(parents=True)
    assert go()["missing"].keys() == {"STSB"}
    lines = [f"g\td\ty\t{i}\t{i % 6}\tDogs {i} run\tA man {i * 7 % 5}\n" for i in range(12)]
    file.write_text("".join(lines))
    scored = go()
    assert scored["tasks"].keys() == {"STSB"} and not scored["missing"]
    file.unlink()
    assert go() == scored


def test_a_run_is_scored_on_whole_texts_however_short_they_were_in_training(run, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"Dogs {i} run\tA man {i * 7 % 5}\t{i}\n" for i in range(9))
    )
    stored = Encoder.load(tmp_path / "start").settings.max_tokens
    results = run("stages.a.max_tokens=4", f'evaluate=["scored:{file}"]').results
    assert results["tasks"][f"scored:{file}"]["num_truncated"] == 0
    assert results["settings"]["max_tokens"] == stored > 4
    cut = evaluate(Encoder.load(tmp_path / "run" / "encoder", max_tokens=4), tasks=[f"scored:{file}"])
    assert cut["tasks"][f"scored:{file}"]["num_truncated"] == 14  # each different text once


def test_another_commit_of_a_dataset_with_the_same_rows_is_the_same_input(run, monkeypatch):
    class Dataset:
        commit, texts = "first", "abcdefgh"
        names, blocks = ("anchor", "positive"), None

        def __init__(self, name, **_):
            pass

        def use(self, columns):
            pass

        def check_unchanged(self):
            pass

        def entries(self):
            return (Entry(i + 1, i, self.record_at(i)) for i in range(len(self.texts)))

        def record_at(self, place):
            return {"anchor": self.texts[place], "positive": "z"}

    monkeypatch.setattr(sources, "HubRecords", Dataset)
    assert not is_skipped(run("stages.a.rows=hub:some/rows"))
    Dataset.commit = "second"
    assert is_skipped(run("stages.a.rows=hub:some/rows"))
    Dataset.texts = "abcdefgi"
    assert not is_skipped(run("stages.a.rows=hub:some/rows"))


def test_the_log_of_a_run_that_goes_on_has_every_step_once_while_it_does(run, tmp_path, monkeypatch):
    changes = ["stages.a.steps=6", "stages.a.checkpoint_every=2", "stages.a.log_every=1"]
    step = Contrast.step

    def broken(num_good):
        left = iter(range(num_good))

        def until(self, batch):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return step(self, batch)

        return until

    for num_good in (3, 3):  # three steps, then from the second on again
        monkeypatch.setattr(Contrast, "step", broken(num_good))
        with pytest.raises(KeyboardInterrupt):
            run(*changes)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]


def test_texts_alone_are_nothing_to_score_by(run, tmp_path):
    (tmp_path / "rows.tsv").write_text("text\n" + "".join(f"A man {i}\n" for i in range(40)))
    with pytest.raises(SettingError, match=r"stages\.a\.evaluate: .*rows\.tsv has texts alone, and nothing to score"):
        run("stages.a.evaluate.held_out=0.2")


@pytest.fixture
def reads(monkeypatch):
    """Return the files whose rows or weights were read."""
    found = []

    def spy(module, name, path=lambda first: first):
        real = getattr(module, name)

        def call(first, *args, **options):
            found.append(str(path(first)))
            return real(first, *args, **options)

        monkeypatch.setattr(module, name, call)

    spy(sources, "open_file")
    spy(stage, "sha256_of_model")
    return found


def test_a_finished_stage_reads_nothing_again(run, tmp_path, reads):
    first = run().stages[0]
    assert reads == [str(tmp_path / "start"), str(tmp_path / "rows.tsv")]
    reads.clear()
    again = run().stages[0]
    assert reads == []
    assert again.skipped and (again.output, again.notes, again.time_s) == (first.output, first.notes, first.time_s)


def test_a_file_that_was_touched_is_read_again_once(run, tmp_path, reads):
    run()
    os.utime(tmp_path / "rows.tsv")
    reads.clear()
    assert is_skipped(run()) and str(tmp_path / "rows.tsv") in reads
    reads.clear()
    assert is_skipped(run()) and reads == []


def test_other_content_of_the_same_size_and_time_is_found(run, tmp_path):
    run()
    file = tmp_path / "rows.tsv"
    about = file.stat()
    file.write_text(file.read_text().replace("Dogs 1", "Cats 1"))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert file.stat().st_mtime_ns == about.st_mtime_ns and not is_skipped(run())


@pytest.mark.parametrize("change", ["stages.a.steps=3", "seed=1"])
def test_other_settings_are_other_inputs_whatever_the_files_are(run, change):
    run()
    assert not is_skipped(run(change))


def test_leaks_and_files_to_select_by_are_looked_at(run, tmp_path):
    leaks, dev = tmp_path / "leaks", tmp_path / "dev.tsv"
    leaks.mkdir()
    (leaks / "a.txt").write_text("Something else entirely.")
    dev.write_text("sentence1\tsentence2\tscore\n" + "".join(f"A {i}\tB {i}\t{i % 3}\n" for i in range(6)))
    rows = json.dumps({"sources": [str(tmp_path / "rows.tsv")], "leaks": [str(leaks)]})
    changes = [f"stages.a.rows={rows}", f"stages.a.evaluate.task=scored:{dev}", "stages.a.evaluate.every=1"]
    run(*changes)
    assert is_skipped(run(*changes))
    (leaks / "b.txt").write_text("A man 1")
    assert not is_skipped(run(*changes))
    dev.write_text(dev.read_text().replace("A 1", "C 1"))
    assert not is_skipped(run(*changes))


def test_rows_of_the_hub_without_a_commit_are_asked_for_again():
    rows = {"sources": [{"path": "hub:a/b", "revision": "main"}]}
    assert look(rows, [], []) is None
    assert look({"sources": [{"path": "hub:a/b", "revision": "a" * 40, "stream": True}]}, [], []) is None
    assert look({"sources": [{"path": "hub:a/b", "revision": "a" * 40}]}, [], []) is not None


def test_a_large_source_has_a_bar_while_it_is_read(run, capsys, monkeypatch):
    monkeypatch.setattr(sources, "_LARGE", 10)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    run(progress=True)
    assert "reading" in capsys.readouterr().err
