"""`tercet train`: a recipe in, an encoder out, with the same bits however often it is killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import yaml
from killing import kill_when
from safetensors.torch import load_file

from tercet import OutputError
from tercet.training.runs import locked

WORDS = "a man is playing guitar on the stage two dogs run through deep snow stocks dropped monday sharply".split()


def sentence(rng):
    return " ".join(rng.choices(WORDS, k=rng.randrange(1, 9)))


def write_table(path, header, rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]), encoding="utf-8")


@pytest.fixture
def data(tmp_path):
    """Write triplets, pairs, labelled pairs and a dev set into the test's folder."""
    rng = random.Random(1)
    triplets = [(sentence(rng), sentence(rng), sentence(rng)) for _ in range(60)]
    write_table(tmp_path / "triplets.tsv", ("anchor", "positive", "negative"), triplets)
    write_table(tmp_path / "pairs.tsv", ("anchor", "positive"), [row[:2] for row in triplets[20:]])
    labels = ("entailment", "neutral", "contradiction")
    labelled = [(sentence(rng), sentence(rng), rng.choice(labels)) for _ in range(30)]
    write_table(tmp_path / "labelled.tsv", ("premise", "hypothesis", "label"), labelled)
    scored = [(sentence(rng), sentence(rng), rng.uniform(0, 5)) for _ in range(12)]
    write_table(tmp_path / "dev.tsv", ("sentence1", "sentence2", "score"), scored)
    return tmp_path


def stage(kind="contrast", **settings):
    given = {"rows": "triplets.tsv", "batch": 6, "learning_rate": 1e-3, "steps": 8, "checkpoint_every": 2}
    return {kind: {**given, "log_every": 1, **settings}}


@pytest.fixture
def write(data, models):
    """Return a function that writes a recipe of some stages."""

    def recipe(*stages, name="recipe.yaml", **top):
        named = [{"name": chr(ord("a") + i), **stage} for i, stage in enumerate(stages)]
        content = {"start": str(models["bert"]), "stages": named, **top}
        (data / name).write_text(yaml.safe_dump(content))
        return name

    return recipe


def weights(folder):
    return {
        f"{file.relative_to(folder)}/{name}": tensor
        for file in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    different = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert different == []


def log(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


DEV = {"task": "scored:dev.tsv", "every": 3}


def test_a_recipe_of_two_stages_gives_an_encoder_a_log_and_results(python, write, data, models):
    second = stage(start="@a", optimizer="adamw", steps=5, evaluate=DEV)
    recipe = write(stage(rows="pairs.tsv"), second, start=str(models["projected"]), evaluate=["scored:dev.tsv"])
    done = python("-m", "tercet", "train", recipe, "--run", "run", folder=data)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "run/encoder"
    names = {"recipe.yaml", "run.json", "metrics.jsonl", "results.json", "encoder", "stages", ".lock", "SHA256SUMS"}
    assert {path.name for path in (data / "run").iterdir()} == names
    assert {path.name for path in (data / "run" / "stages").iterdir()} == {"01-a", "02-b"}
    for name in ("01-a", "02-b"):
        files = {path.name for path in (data / "run" / "stages" / name).iterdir()}
        assert files == {"encoder", "metrics.jsonl", "stage.json", "key", "key.sha256", "SHA256SUMS"}

    start, first = weights(models["projected"]), weights(data / "run" / "stages" / "01-a" / "encoder")
    last = weights(data / "run" / "encoder")
    assert start.keys() == first.keys() == last.keys()
    assert not any(torch.equal(first[name], last[name]) for name in first)
    assert_same(last, weights(data / "run" / "stages" / "02-b" / "encoder"))

    lines = log(data / "run")
    steps = [*(("a", i) for i in range(1, 9)), *(("b", i) for i in range(1, 6))]
    assert [(x["stage"], x["step"]) for x in lines if "loss" in x] == steps
    assert [x["step"] for x in lines if "dev" in x] == [0, 3, 5]
    assert {"alignment", "uniformity", "temperature", "gradient_norm", "learning_rate"} <= lines[0].keys()
    results = json.loads((data / "run" / "results.json").read_text())
    best = max(x["dev"] for x in lines if x.get("step") and "dev" in x)
    assert results["tasks"]["scored:dev.tsv"]["score"] == pytest.approx(best, abs=1e-3)
    described = json.loads((data / "run" / "run.json").read_text())
    assert described["versions"]["torch"] == torch.__version__
    assert len(described["stages"]["a"]["inputs"]["rows"]["sources"][0]["sha256"]) == 64


def test_a_saved_encoder_is_read_by_other_commands(tercet, write, data):
    assert tercet("train", write(stage(steps=2)), "--run", "run").returncode == 0
    (data / "in.txt").write_text("a man\ntwo dogs\n")
    assert tercet("embed", "in.txt", "--model", "run/encoder", "--out", "out.npy").returncode == 0
    np.testing.assert_allclose(np.linalg.norm(np.load(data / "out.npy"), axis=1), 1, atol=1e-5)


def test_a_dry_run_prints_the_recipe_and_writes_nothing(tercet, write, data):
    before = {path.name for path in data.iterdir()}
    done = tercet("train", write(stage()), "--run", "run", "--dry-run", "--set", "stages.a.batch=4")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["stages"][0]["contrast"]["batch"] == 4
    assert {path.name for path in data.iterdir()} == before | {"recipe.yaml"}


def test_what_is_done_is_skipped_and_what_has_changed_runs_again(tercet, write, data):
    recipe = write(stage(steps=2), stage(start="@a", steps=2))
    records = [data / "run" / "stages" / name / "stage.json" for name in ("01-a", "02-b")]

    def train(*more):
        done = tercet("train", recipe, "--run", "run", *more)
        assert done.returncode == 0, done.stderr
        return [record.stat().st_mtime_ns for record in records], done.stderr

    first, _ = train()
    again, said = train()
    assert again == first
    assert "a: done before" in said
    assert train("--set", "stages.b.log_every=7")[0] == first
    refused = tercet("train", recipe, "--run", "run", "--set", "stages.b.temperature=0.1")
    assert refused.returncode == 2 and "take --force" in refused.stderr
    second, said = train("--force", "--set", "stages.b.temperature=0.1")
    assert (second[0] == first[0], second[1] == first[1]) == (True, False)
    assert "02-b: its settings or inputs have changed, so it starts again" in said
    third, _ = train("--force", "--set", "stages.b.temperature=0.1", "--set", "stages.a.temperature=0.1")
    assert third[0] != second[0]
    assert third[1] != second[1], "a stage runs again where what it starts from has changed"
    with (data / "triplets.tsv").open("a") as stream:
        stream.write("a\tb\tc\n")
    fourth, _ = train("--force", "--set", "stages.b.temperature=0.1", "--set", "stages.a.temperature=0.1")
    assert fourth[0] != third[0], "a stage runs again where its rows have changed"


def test_a_damaged_output_is_made_again(tercet, write, data):
    recipe = write(stage(steps=2))
    assert tercet("train", recipe, "--run", "run").returncode == 0
    expected = weights(data / "run" / "encoder")
    file = data / "run" / "stages" / "01-a" / "encoder" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    done = tercet("train", recipe, "--run", "run")
    assert "starts again" in done.stderr
    assert_same(weights(data / "run" / "encoder"), expected)


@pytest.mark.parametrize("kind", ["contrast", "classify"])
@pytest.mark.parametrize("model", ["projected", "question", "bert"])
def test_every_kind_of_stage_trains_every_kind_of_model(tercet, write, data, models, kind, model):
    rows = "labelled.tsv" if kind == "classify" else "triplets.tsv"
    done = tercet("train", write(stage(kind, rows=rows, steps=2)), "--run", "run", "--set", f"start={models[model]}")
    assert done.returncode == 0, done.stderr
    start, end = weights(models[model]), weights(data / "run" / "encoder")
    assert start.keys() == end.keys()
    assert not all(torch.equal(start[name], end[name]) for name in start)


def test_dropout_is_for_training_only(tercet, write, data, models):
    recipe = write(stage(steps=1), start=str(models["projected"]))
    for share in ("0.0", "0.5"):
        done = tercet("train", recipe, "--run", f"run-{share}", "--set", f"stages.a.dropout={share}")
        assert done.returncode == 0, done.stderr
    configs = [json.loads((data / f"run-{share}" / "encoder" / "config.json").read_text()) for share in ("0.0", "0.5")]
    own = json.loads((models["projected"] / "config.json").read_text())["dropout_rate"]
    assert [config["dropout_rate"] for config in configs] == [own, own]
    assert log(data / "run-0.0")[0]["loss"] != log(data / "run-0.5")[0]["loss"]


# LoRA


def test_lora_changes_the_matrices_it_is_for_and_is_merged(tercet, write, data, models):
    recipe = write(stage(steps=3, lora={"rank": 2}), start=str(models["projected"]))
    done = tercet("train", recipe, "--run", "run")
    assert done.returncode == 0, done.stderr
    start, end = weights(models["projected"]), weights(data / "run" / "encoder")
    assert start.keys() == end.keys()
    changed = {name for name in start if not torch.equal(start[name], end[name])}
    attention = "model.safetensors/encoder.block.{}.layer.0.SelfAttention.{}.weight"
    matrices = {attention.format(block, name) for block in range(4) for name in "qv"}
    assert changed == {*matrices, "2_Dense/model.safetensors/linear.weight"}
    for name in matrices:
        assert torch.linalg.matrix_rank((end[name] - start[name]).double(), atol=1e-6) <= 2


# Kill and resume


def new_paths(run, pattern):
    """Return a function that tells how many paths of this pattern were seen that were not there at first."""
    before, seen = {*run.glob(pattern)}, set()

    def count():
        seen.update(path for path in run.glob(pattern) if path not in before)
        return len(seen)

    return count


SAVED, SAVING = "stages/*/checkpoints/step-*", "stages/*/checkpoints/.step-*"


def test_killed_ten_times_it_ends_with_the_same_bits(launch, tercet, write, data):
    recipe = write(
        stage(rows="pairs.tsv", steps=60),
        stage(start="@a", optimizer="adamw", steps=None, epochs=4, evaluate=DEV, learn_temperature=True),
    )
    begin = time.monotonic()
    done = tercet("train", recipe, "--run", "whole")
    assert done.returncode == 0, done.stderr
    whole_s = time.monotonic() - begin
    rng, run, num_killed, num_in_saving = random.Random(5), data / "killed", 0, 0
    for _ in range(30):
        saved, saving = new_paths(run, SAVED), new_paths(run, SAVING)
        with launch("train", recipe, "--run", "killed", folder=data) as started:
            if num_killed % 3 == 0:  # while a checkpoint is written
                kill_when(lambda saving=saving: saving() == 2, started)
            elif num_killed % 3 == 1:  # at some moment behind one
                kill_when(lambda saved=saved: saved() == 2, started, delay_s=rng.uniform(0, 0.1))
            else:  # at some moment from the start on
                kill_when(lambda: True, started, delay_s=rng.uniform(0, 0.3) * whole_s)
        if started[1].returncode == 0:  # it was faster than the signal
            shutil.rmtree(run)
        else:
            assert started[1].returncode == -signal.SIGKILL, started[1].stderr
            num_killed += 1
            num_in_saving += any(run.glob(SAVING))
        if num_killed == 10:
            break
    assert num_killed == 10
    assert num_in_saving >= 1
    done = tercet("train", recipe, "--run", "killed")
    assert done.returncode == 0, done.stderr
    assert "damaged" not in done.stderr
    assert_same(weights(run / "encoder"), weights(data / "whole" / "encoder"))
    assert_same(weights(run / "stages"), weights(data / "whole" / "stages"))
    assert (run / "metrics.jsonl").read_text() == (data / "whole" / "metrics.jsonl").read_text()
    assert [path for path in run.rglob(".*") if path.name != ".lock"] == []


def test_what_a_kill_left_half_written_is_removed(tercet, write, data):
    recipe = write(stage(steps=2))
    assert tercet("train", recipe, "--run", "run").returncode == 0
    left = [data / "run" / ".encoder.abcdefgh.tercet", data / "run" / "stages" / "01-a" / ".encoder.abcd_123.tercet"]
    for folder in left:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
    (data / "run" / ".run.json.abcdefg1.tercet").write_bytes(b"half")
    (data / "run" / ".gitignore").write_text("*")
    assert tercet("train", recipe, "--run", "run").returncode == 0
    assert {path.name for path in (data / "run").rglob(".*")} == {".lock", ".gitignore"}


def test_lora_goes_on_where_it_was(launch, tercet, write, data):
    recipe = write(stage(steps=6, lora={"rank": 2, "dropout": 0.2}))
    assert tercet("train", recipe, "--run", "whole").returncode == 0
    checkpoint = data / "killed" / "stages" / "01-a" / "checkpoints" / "step-00000002"
    with launch("train", recipe, "--run", "killed", folder=data) as started:
        kill_when(checkpoint.exists, started)
    done = tercet("train", recipe, "--run", "killed")
    assert done.returncode == 0, done.stderr
    assert_same(weights(data / "killed" / "encoder"), weights(data / "whole" / "encoder"))


def test_a_damaged_checkpoint_is_named_and_the_end_is_the_same(launch, tercet, write, data):
    recipe = write(stage(steps=10))
    assert tercet("train", recipe, "--run", "whole").returncode == 0
    checkpoints = data / "killed" / "stages" / "01-a" / "checkpoints"
    with launch("train", recipe, "--run", "killed", folder=data) as started:
        kill_when((checkpoints / "step-00000004").exists, started)
    newest = sorted(checkpoints.glob("step-*"))[-1]
    file = newest / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    done = tercet("train", recipe, "--run", "killed")
    assert done.returncode == 0, done.stderr
    assert str(file.relative_to(data)) in done.stderr
    assert_same(weights(data / "killed" / "encoder"), weights(data / "whole" / "encoder"))


# What goes wrong


def test_a_loss_that_is_not_finite_ends_with_an_error_and_a_good_checkpoint(tercet, write, data):
    recipe = write(stage(learning_rate=1e30, optimizer="adamw", clip=None, checkpoint_every=1))
    done = tercet("train", recipe, "--run", "run")
    assert done.returncode == 2
    assert "a, step 1: the update made " in done.stderr
    assert "There is no checkpoint yet" in done.stderr
    assert not (data / "run" / "stages" / "01-a" / "checkpoints").exists()
    assert not (data / "run" / "encoder").exists()


def test_two_runs_cannot_share_a_folder(launch, tercet, write, data):
    started_file = data / "run" / "stages" / "01-a" / "key"
    with launch("train", write(stage(steps=5000)), "--run", "run", folder=data) as (pid, _):
        while not started_file.exists():
            os.kill(pid, 0)
            time.sleep(0.01)
        with pytest.raises(OutputError, match="another run is going on here"), locked(data / "run"):
            pass
        os.kill(pid, signal.SIGKILL)
    assert tercet("train", write(stage(steps=2)), "--run", "run").returncode == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "stages.a.bach=3"], "stages.a.contrast.bach: there is no such setting"),
        (["--set", "stages.a.rows=none.tsv"], "none.tsv"),
        (["--set", "start=none"], "none"),
        (["--set", "stages.a.evaluate.task=STSX"], "task 'STSX'"),
        (["--set", "evaluate=STSX"], "task 'STSX'"),
        (["--set", "stages.a.lora.targets=[\"none\"]"], "no layer has such a name"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_exit_code_2(tercet, write, data, more, message):
    done = tercet("train", write(stage()), "--run", "run", *more)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


def test_a_folder_with_other_files_is_refused(tercet, write, data):
    recipe = write(stage())
    content = (data / recipe).read_bytes()
    done = tercet("train", recipe, "--run", ".")
    assert done.returncode == 2
    assert "holds other files than a run" in done.stderr
    assert (data / recipe).read_bytes() == content


# Several processes


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tercet"]


@pytest.mark.parametrize("shards", ["false", "true"])
def test_two_processes_give_the_encoder_of_one_and_go_on_where_they_were(python, tercet, write, data, models, shards):
    settings = {"dropout": 0.0, "evaluate": DEV, "learn_temperature": True, "mask_duplicates": True}
    recipe = write(stage(steps=4, **settings), start=str(models["projected"]))
    assert tercet("train", recipe, "--run", "one").returncode == 0
    changes = {"ACCELERATE_USE_FSDP": shards}
    done = python(*TORCHRUN, "train", recipe, "--out", "two", folder=data, changes=changes)
    assert done.returncode == 0, done.stderr
    for a, b in zip(log(data / "one"), log(data / "two"), strict=True):
        assert a == pytest.approx(b, abs=2e-4)
    start, one, two = (weights(folder) for folder in (models["projected"], data / "one/encoder", data / "two/encoder"))
    assert start.keys() == one.keys() == two.keys()
    # optimizers make large updates of gradients near 0, where rounding decides: updates are compared as a whole
    update, difference = (torch.cat([(one[n] - other[n]).flatten() for n in one]).norm() for other in (start, two))
    assert difference < 0.01 * update

    command = [sys.executable, *TORCHRUN, "train", recipe, "--out", "killed"]
    checkpoint = data / "killed" / "stages" / "01-a" / "checkpoints" / "step-00000002"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **changes}
    with subprocess.Popen(command, cwd=data, env=environment, stderr=subprocess.DEVNULL) as process:
        while not checkpoint.exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.terminate()
    done = python(*TORCHRUN, "train", recipe, "--out", "killed", folder=data, changes=changes)
    assert done.returncode == 0, done.stderr
    assert_same(weights(data / "killed" / "encoder"), two)


# What else a run gives


def test_the_log_is_written_for_tensorboard_too(tercet, write, data):
    done = tercet("train", write(stage(steps=2)), "--run", "run", "--log", "tensorboard")
    assert done.returncode == 0, done.stderr
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(data / "run" / "tensorboard" / "a")).Reload()
    losses = [line["loss"] for line in log(data / "run")]
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(losses)


def test_a_run_is_drawn_by_the_report(tercet, write, data):
    assert tercet("train", write(stage(steps=3, evaluate=DEV)), "--run", "run").returncode == 0
    done = tercet("report", "run", "--out", "report.md")
    assert done.returncode == 0, done.stderr
    text = (data / "report.md").read_text()
    for title in ("Loss in training", "Score on the dev set in training", "Alignment in training"):
        assert title in text
