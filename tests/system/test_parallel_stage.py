"""The stage `parallel` in a run: designs, the frozen source, the readout of evaluation, trajectories, a mini recipe."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from killing import kill_when
from safetensors.torch import load_file

from tercet import Encoder, SettingError
from tercet.evaluation.evaluate import evaluate
from tercet.evaluation.tasks.translation import parallel_geometry
from tercet.training.loop.processes import Processes
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.stages.parallel import KIND
from tercet.training.stages.stage import Context

RECIPES = Path(__file__).parents[2] / "recipes"
WORDS = "a man is playing guitar on the stage two dogs run through deep snow stocks dropped monday sharply".split()


@pytest.fixture
def folder(tiny, tmp_path):
    """Write parallel pairs, scored pairs, and a source of another width."""
    rng = random.Random(1)

    def text():
        return " ".join(rng.choices(WORDS, k=rng.randrange(1, 9)))

    pairs = [(text(), text()) for _ in range(40)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in [("en", "zh"), *pairs]))
    scored = [(text(), text(), rng.choice([1, 5])) for _ in range(12)]
    (tmp_path / "scored.tsv").write_text(
        "".join("\t".join(map(str, row)) + "\n" for row in [("sentence1", "sentence2", "score"), *scored])
    )
    tiny("t5", projection=40).save(tmp_path / "source")
    tiny("bert", readout="cls-mlp").save(tmp_path / "start")
    return tmp_path


def write(folder, name="recipe.yaml", **changes):
    settings = {
        "start": str(folder / "start"),
        "source": str(folder / "source"),
        "encoder": {"readout": "cls-mlp", "mlp": "training"},
        "rows": str(folder / "pairs.tsv"),
        "batch": 6,
        "queue": 15,
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "optimizer": "adamw",
        "steps": 8,
        "checkpoint_every": 2,
        "log_every": 1,
        "trajectory": {"every": 4, "sets": [f"geometry:{folder}/scored.tsv", f"parallel:{folder}/pairs.tsv"]},
        **changes,
    }
    (folder / name).write_text(yaml.safe_dump({"stages": [{"name": "a", "parallel": settings}]}))
    return folder / name


def weights(folder):
    return {
        (file.name, name): t for file in sorted(folder.rglob("*.safetensors")) for name, t in load_file(file).items()
    }


@pytest.mark.parametrize("cache", [False, True])
def test_a_target_learns_from_a_frozen_source_and_is_measured_on_the_way(folder, cache):
    result = run_recipe(read_recipe(write(folder, cache=cache)), folder / "run")
    assert not (folder / "run" / "stages" / "01-a" / "source").exists()
    assert bool(list((folder / "run").rglob("*.npy"))) == cache

    encoder = Encoder.load(result.encoder, device="cpu")
    assert (encoder.dim, encoder.settings.mlp) == (128, "training")  # read out as CLS without MLP
    assert Encoder.load(result.encoder, device="cpu", mlp="always").dim == 40
    start, end = (weights(path) for path in (folder / "start", result.encoder))
    assert not all(torch.equal(start[name], tensor) for name, tensor in end.items() if name in start)

    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [line["queued"] for line in steps] == [0, 6, 12, 15, 15, 15, 15, 15]
    for kind in ("geometry", "parallel"):
        measured = [line for line in lines if line.get("set", "").startswith(kind)]
        assert [line["step"] for line in measured] == [0, 4, 8]
        assert all(np.isfinite([line["alignment"], line["uniformity"]]).all() for line in measured)


def test_a_frozen_source_does_not_change_by_a_bit(folder):
    settings = read_recipe(write(folder, trajectory=None)).stages[0].settings
    work = KIND.work(settings, Context("a", folder / "stage", 0, {}, Processes(), score=None, measure=None))
    work.run()
    stored, used = Encoder.load(folder / "source", device="cpu"), work.source
    assert np.array_equal(used.embed(["two dogs", "snow"]), stored.embed(["two dogs", "snow"]))
    before, after = (encoder.tower.state_dict() for encoder in (stored, used))
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert not any(parameter.grad is not None for parameter in used.tower.parameters())
    assert not used.tower.training


def test_the_last_point_of_a_trajectory_is_what_evaluate_measures(folder):
    result = run_recipe(read_recipe(write(folder)), folder / "run")
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    last = {line["set"].partition(":")[0]: line for line in lines if "set" in line}
    source = Encoder.load(folder / "source", device="cpu")
    for kind, file, mlp in (("geometry", "scored.tsv", "training"), ("parallel", "pairs.tsv", "always")):
        encoder = Encoder.load(result.encoder, device="cpu", mlp=mlp)
        task = f"{kind}:{folder}/{file}"
        found = evaluate(encoder, tasks=[task], source=source)["tasks"][task]
        assert found["alignment"] == pytest.approx(last[kind]["alignment"], rel=1e-4)
        assert found["uniformity"] == pytest.approx(last[kind]["uniformity"], rel=1e-4)


def test_both_towers_of_a_dual_design_are_trained_and_kept(folder):
    before = weights(folder / "source")
    run_recipe(read_recipe(write(folder, design="dual", queue=0)), folder / "run")
    after = weights(folder / "run" / "stages" / "01-a" / "source")
    assert before.keys() == after.keys()
    assert not all(torch.equal(before[name], after[name]) for name in before)


def test_one_encoder_is_source_and_target_of_the_multilingual_design(folder):
    result = run_recipe(read_recipe(write(folder, design="multilingual", source=None, queue=0)), folder / "run")
    assert Encoder.load(result.encoder, device="cpu", mlp="always").dim == 128
    assert not (folder / "run" / "stages" / "01-a" / "source").exists()


def test_a_killed_run_ends_with_the_same_bits(launch, folder):
    recipe = write(folder)
    with launch("train", recipe, "--run", "whole", folder=folder) as (_, done):
        pass
    assert done.returncode == 0, done.stderr
    checkpoints = folder / "killed" / "stages" / "01-a" / "checkpoints"
    with launch("train", recipe, "--run", "killed", folder=folder) as started:
        kill_when(lambda: (checkpoints / "step-00000004").exists(), started)
    assert (checkpoints / "step-00000004" / "extra-queue.safetensors").exists()
    with launch("train", recipe, "--run", "killed", folder=folder) as (_, done):
        pass
    assert done.returncode == 0, done.stderr
    whole, killed = (weights(folder / name / "encoder") for name in ("whole", "killed"))
    assert whole.keys() == killed.keys()
    assert [name for name in whole if not torch.equal(whole[name], killed[name])] == []
    logs = [(folder / name / "metrics.jsonl").read_text() for name in ("whole", "killed")]
    assert logs[0] == logs[1]


def test_a_source_of_another_width_without_an_mlp_is_refused(tercet, folder):
    done = tercet("train", write(folder, encoder={"readout": "mean"}), "--run", "run")
    assert done.returncode == 2
    assert "vectors have 128 numbers, those of the source 40" in done.stderr


def test_encoders_of_two_languages_are_compared_and_must_be_of_one_width(tiny, tmp_path):
    english, chinese = ["two dogs run", "deep snow", "a man"], ["snow", "a guitar", "monday"]
    (tmp_path / "ntrex").mkdir()
    for name, lines in (("src.eng", english), ("ref.zho-CN", chinese)):
        (tmp_path / "ntrex" / f"newstest2019-{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    target, source = tiny("bert", readout="mean", projection=24), tiny("t5", projection=24)
    found = evaluate(target, tasks="retrieval", data=tmp_path, source=source)
    cosines = source.embed(english) @ target.embed(chinese).T
    wanted = [np.mean(cosines.argmax(axis) == np.arange(3)) for axis in (1, 0)]
    assert found["tasks"]["retrieval"]["score"] == pytest.approx(100 * np.mean(wanted))
    assert found["settings"]["source"]["fingerprint"] == source.fingerprint()
    with pytest.raises(SettingError, match=r"vectors have 24 and 128 numbers.*mlp=always"):
        evaluate(tiny("bert", readout="mean"), tasks="retrieval", data=tmp_path, source=source)


def test_parallel_pairs_are_measured_as_the_paper_says():
    english = [f"en {i}" for i in range(1300)]
    chinese = [f"中 {i}" for i in range(1300)]
    seen = []

    def embed(texts):
        seen.append(texts)
        return np.random.default_rng(len(seen)).normal(size=(len(texts), 4))

    result = parallel_geometry(list(zip(english, chinese, strict=True)), embed, embed)
    sources, targets = seen
    assert sources == english[:1000]
    assert targets[:250] == chinese[:250]
    assert len(set(targets[250:])) == 750 or len(chinese[1000:]) < 750
    assert set(targets[250:]) <= set(chinese[1000:])  # drawn from the rest of the data
    first, second = (np.random.default_rng(i).normal(size=(1000, 4)) for i in (1, 2))
    first, second = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    assert result["alignment"] == pytest.approx(np.mean(np.sum((first - second)[:250] ** 2, axis=1)))
    both = np.concatenate([first, second])
    squares = np.sum((both[:, None] - both[None]) ** 2, axis=2)
    wanted = np.log(np.mean(np.exp(-2 * squares)[~np.eye(2000, dtype=bool)]))
    assert result["uniformity"] == pytest.approx(wanted)
    seen.clear()
    parallel_geometry(list(zip(chinese, english, strict=True)), embed, embed)
    assert seen[1] == english[:1000]  # the Chinese side is the one that is swapped


@pytest.mark.skipif("TERCET_DATA" not in os.environ, reason="needs the training data: set TERCET_DATA")
def test_a_mini_recipe_runs_a_few_steps_on_real_data(tercet, tmp_path):
    changes = ["steps=2", "batch=8", "queue=12", "cache=false", "evaluate=null", "trajectory=null"]
    few = tmp_path / "few.tsv"
    lines = (Path(os.environ["TERCET_DATA"]) / "train" / "parallel_en_zh.tsv").read_text(encoding="utf-8").split("\n")
    few.write_text("\n".join(lines[:2000]) + "\n", encoding="utf-8")
    changes += [f'rows.sources=["{few}"]', "start=random:t5-tiny"]
    sets = [word for change in changes for word in ("--set", f"stages.zh-from-en.{change}")]
    pieces = json.dumps({"path": str(few), "kind": "texts", "columns": {"text": "zh"}})
    sets += ["--set", f"stages.pieces.rows={pieces}", "--set", "stages.pieces.num_pieces=2000", "--set", "evaluate=[]"]
    recipe = RECIPES / "mini" / "parallel-zh-from-minilm.yaml"
    done = tercet("train", recipe, "--run", "run", *sets)
    assert done.returncode == 0, done.stderr
    described = json.loads((tmp_path / "run" / "run.json").read_text())["stages"]["zh-from-en"]["inputs"]["rows"]
    assert described["sources"][0]["num_left_out_by_languages"] >= 0
    assert Encoder.load(tmp_path / "run" / "encoder", device="cpu").embed(["你好"]).shape == (1, 384)
