"""The stage `synthesize` in a run: later stages learn from its triplets, and only what changed is made again."""

import json
import shutil

import numpy as np
import pytest
import yaml

from tercet import Encoder, InputError, SettingError
from tercet.data.feeding.sources import open_rows
from tercet.synthesis import corpus
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe

WORDS = "a man plays the guitar on stage two dogs run deep snow".split()


class StandIn:
    """Says of every sentence something that follows and something that does not."""

    num_generated = 0

    def generate(self, texts, *, relation, sampling, num_samples, seed):
        StandIn.num_generated += len(texts)
        mark = "yes" if relation == "entailment" else "no"
        return [[f"{mark} {' '.join(reversed(text.split()))} {k}" for k in range(num_samples)] for text in texts]

    def score(self, premises, hypotheses):
        sure = [0.8 if len(premise) % 2 else 0.95 for premise in premises]
        pairs = zip(sure, hypotheses, strict=True)
        return np.array([p if text.startswith("yes") else 1 - p for p, text in pairs], np.float32)

    def fingerprint(self):
        return "stand-in"


@pytest.fixture
def run(tmp_path, tiny, monkeypatch):
    """Return a function that runs a recipe of two stages, and says which were done and how much was generated."""
    monkeypatch.setattr(corpus, "_load", lambda settings: StandIn())
    tiny("t5").save(tmp_path / "start")
    rng = np.random.default_rng(0)
    lines = [" ".join([f"{i}", *rng.choice(WORDS, 9)]) for i in range(40)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    recipe = {
        "start": str(tmp_path / "start"),
        "stages": [
            {
                "name": "synthetic",
                "synthesize": {
                    "sentences": str(tmp_path / "in.txt"),
                    "model": str(tmp_path / "start"),
                    "shard_sentences": 16,
                },
            },
            {
                "name": "open",
                "contrast": {"rows": {"path": "@synthetic"}, "batch": 4, "steps": 2, "learning_rate": 1e-3},
            },
        ],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))

    def go(*changes):
        StandIn.num_generated = 0
        result = run_recipe(read_recipe(tmp_path / "recipe.yaml", changes=changes), tmp_path / "run", force=True)
        return {stage.name: stage for stage in result.stages}, StandIn.num_generated

    return go


def triplets(tmp_path):
    text = (tmp_path / "run" / "stages" / "01-synthetic" / "triplets.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_an_encoder_learns_from_the_triplets_of_an_earlier_stage(run, tmp_path):
    stages, num_generated = run()
    assert num_generated == 80
    rows = triplets(tmp_path)
    assert 4 < len(rows) == stages["synthetic"].notes["num_triplets"] < 40
    assert all(len(row["anchor"]) % 2 == 0 for row in rows)
    record = json.loads((stages["open"].folder / "stage.json").read_text())
    assert record["inputs"]["rows"]["num_rows"] == len(rows)
    assert (tmp_path / "run" / "encoder").is_dir()


def test_what_is_done_is_skipped_and_another_alpha_generates_nothing(run, tmp_path):
    run()
    strict = triplets(tmp_path)
    stages, num_generated = run()
    assert [stage.skipped for stage in stages.values()] == [True, True]
    assert num_generated == 0
    stages, num_generated = run("stages.synthetic.alpha=0.7")
    assert [stage.skipped for stage in stages.values()] == [False, False]
    assert num_generated == 0
    assert len(triplets(tmp_path)) == 40 > len(strict)


def test_the_folder_of_a_stage_is_not_filtered_behind_the_back_of_its_run(run, tmp_path):
    run()
    folder, before = tmp_path / "run" / "stages" / "01-synthetic", triplets(tmp_path)
    with pytest.raises(InputError, match=r"01-synthetic: is a stage of a run.* --set stages\.NAME\.alpha=0\.8"):
        corpus.refilter(folder, alpha=0.7)
    assert triplets(tmp_path) == before


def test_other_sampling_or_sentences_generate_anew(run, tmp_path):
    run()
    assert run("stages.synthetic.top_p=0.5")[1] == 80
    assert run("stages.synthetic.top_p=0.9")[1] == 0
    assert run("stages.synthetic.max_sentences=20")[1] == 40
    with (tmp_path / "in.txt").open("a") as stream:
        stream.write("one more sentence that has eight words here\n")
    assert run()[1] == 82


def test_another_engine_generates_anew_and_deletes_nothing(run, tmp_path, monkeypatch):
    run()
    folder = tmp_path / "run" / "candidates" / "synthetic"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(StandIn, "fingerprint", lambda _: "another engine")
    assert run("stages.synthetic.alpha=0.7")[1] == 80
    assert before.items() < {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}.items()


HELD_OUT = [
    'stages.open.rows={"path": "@synthetic", "share": [0, 0.6]}',
    'stages.open.evaluate={"rows": {"path": "@synthetic", "share": [0.6, 1.0]}, "every": 1}',
]


def test_a_stage_is_scored_on_triplets_that_it_does_not_learn_from(run, tmp_path):
    stages, _ = run(*HELD_OUT)
    record = json.loads((stages["open"].folder / "stage.json").read_text())
    nums = [record["inputs"][part]["num_rows"] for part in ("rows", "dev")]
    assert min(nums) > 0 and sum(nums) == len(triplets(tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = {line["step"]: line["dev"] for line in lines if line.get("set") == "triplets:@synthetic"}
    assert list(scores) == [0, 1, 2]
    assert stages["open"].notes["best"]["score"] == max(scores[1], scores[2])
    held_out = open_rows({"path": stages["synthetic"].output.path, "share": [0.6, 1.0]}, kind="triplets")
    for step, folder in ((0, tmp_path / "start"), (stages["open"].notes["best"]["step"], tmp_path / "run" / "encoder")):
        encoder = Encoder.load(folder)
        right = [
            encoder.similarity([row.anchor], [row.positive]) > encoder.similarity([row.anchor], row.negatives)
            for row in held_out
        ]
        assert scores[step] == pytest.approx(100 * np.mean(right))


def test_a_stage_may_hold_out_a_part_of_its_own_rows(run, tmp_path):
    first, _ = run(*HELD_OUT)
    shares = json.loads((first["open"].folder / "stage.json").read_text())["inputs"]
    held_out = shares["dev"]["num_rows"] / len(triplets(tmp_path))
    second, _ = run(f"stages.open.evaluate={json.dumps({'held_out': held_out, 'every': 1})}")
    inputs = json.loads((second["open"].folder / "stage.json").read_text())["inputs"]
    assert [inputs[part]["num_rows"] for part in ("rows", "dev")] == [
        shares[part]["num_rows"] for part in ("rows", "dev")
    ]
    assert not second["open"].skipped and second["open"].notes == first["open"].notes
    assert sum(inputs[part]["num_rows"] for part in ("rows", "dev")) == len(triplets(tmp_path))
    border = inputs["rows"]["sources"][0]["share"][1]
    assert inputs["dev"]["sources"][0]["share"] == [border, 1.0]


def test_the_steps_of_a_stage_follow_from_the_rows_of_an_earlier_one(run, tmp_path):
    stages, _ = run('stages.open.steps={"epochs": 2, "least": 3, "most": 50}', "stages.open.evaluate=null")
    assert stages["open"].notes["num_steps"] == round(2 * len(triplets(tmp_path)) / 4) > 3
    fewer, _ = run('stages.open.steps={"epochs": 2, "least": 3, "most": 50}', "stages.synthetic.max_sentences=2")
    assert fewer["open"].notes["num_steps"] == 3


def test_fewer_triplets_than_needed_end_a_run_before_anything_is_learned(run, tmp_path):
    num = len(run()[0]) and len(triplets(tmp_path))
    assert run(f"stages.synthetic.min_triplets={num}")[0]["synthetic"].notes == {"num_triplets": num}
    with pytest.raises(
        InputError, match=rf"in\.txt: {num} of 40 .+ {num + 1} are needed.+stages\.synthetic\.alpha=0\.5"
    ):
        run(f"stages.synthetic.min_triplets={num + 1}", "stages.open.steps=3")
    record = json.loads((tmp_path / "run" / "stages" / "02-open" / "stage.json").read_text())
    assert record["notes"]["num_steps"] == 2
    assert run(f"stages.synthetic.min_triplets={num + 1}", "stages.synthetic.alpha=0.5")[1] == 0


def test_other_held_out_triplets_train_anew_and_a_task_beside_them_is_refused(run):
    run(*HELD_OUT)
    assert [stage.skipped for stage in run(*HELD_OUT)[0].values()] == [True, True]
    less = HELD_OUT[1].replace("0.6", "0.7")
    assert [stage.skipped for stage in run(HELD_OUT[0], less)[0].values()] == [True, False]
    with pytest.raises(SettingError, match="task, rows and held_out are three things"):
        run(*HELD_OUT, "stages.open.evaluate.task=STSB")


def test_evaluation_texts_are_an_input(run, tmp_path):
    (tmp_path / "eval.txt").write_text("nothing of the kind\n")
    leaks = f"stages.synthetic.leaks=[{json.dumps(str(tmp_path / 'eval.txt'))}]"
    run(leaks)
    first = triplets(tmp_path)
    (tmp_path / "eval.txt").write_text(first[0]["anchor"] + "\n")
    stages, num_generated = run(leaks)
    assert not stages["synthetic"].skipped
    assert num_generated == 0
    assert triplets(tmp_path) == first[1:]


def test_a_setting_that_is_unknown_is_named_with_its_path(run):
    with pytest.raises(SettingError, match=r"stages\.synthetic\.synthesize\.alhpa: there is no such setting.*alpha"):
        run("stages.synthetic.alhpa=1")


def test_a_corpus_that_is_there_is_taken_as_it_is(run, tmp_path):
    stages, _ = run()
    written = stages["synthetic"].output.path
    shared = tmp_path / "shared"
    shutil.copytree(written.parent, shared)
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "in.txt").unlink()  # what it was made from is not needed any more
    stages, num_generated = run(f"stages.synthetic.corpus={shared}", "stages.synthetic.model=nowhere")
    assert num_generated == 0
    copied = stages["synthetic"].output.path.read_bytes()
    assert copied == (shared / "triplets.jsonl").read_bytes()
    assert stages["synthetic"].notes == {"num_triplets": copied.count(b"\n")}
    lines = (shared / "triplets.jsonl").read_bytes().splitlines(keepends=True)
    (shared / "triplets.jsonl").write_bytes(b"".join(lines[:-1]))
    stages, _ = run(f"stages.synthetic.corpus={shared}")
    assert not stages["synthetic"].skipped and not stages["open"].skipped
    with pytest.raises(InputError, match=r"corpus .+: has no triplets\.jsonl\. Name a folder that synthesize wrote"):
        run(f"stages.synthetic.corpus={tmp_path}")
