"""A model made from nothing by `tercet train`: tokenizer, denoising, distillation, contrast."""

import json
import random

import pytest
import torch
import yaml
from killing import kill_when
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from tercet import Encoder

WORDS = "man guitar stage dog snow stock monday river fence crowd play run drop fall wait".split()


@pytest.fixture
def data(tmp_path):
    rng = random.Random(2)
    lines = [" ".join(rng.choices(WORDS, k=rng.randrange(2, 9))) for _ in range(120)]
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in lines))
    pairs = [f"{a}\t{b}\n" for a, b in zip(lines[::2], lines[1::2], strict=True)]
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + "".join(pairs))
    return tmp_path


@pytest.fixture
def recipe(data, models):
    loop = {"learning_rate": 1e-3, "optimizer": "adamw", "steps": 6, "batch": 8, "log_every": 1, "checkpoint_every": 2}
    stages = [
        {"name": "pieces", "tokenizer": {"rows": "texts.txt", "num_pieces": 60, "num_sentinels": 4}},
        {"name": "gaps", "denoise": {"rows": ["texts.txt"], "start": "random:t5-tiny", "tokenizer": "@pieces", **loop}},
        {
            "name": "teach",
            "distill": {
                "start": "@gaps",
                "teacher": [str(models["t5"]), {"model": str(models["bert"]), "weight": 2}],
                "rows": ["texts.txt", "pairs.tsv"],
                **loop,
                "steps": 20,
            },
        },
        {"name": "pairs", "contrast": {"start": "@teach", "rows": "pairs.tsv", **loop}},
    ]
    encoder = {"readout": "enc-mean", "projection": 256, "max_tokens": 32}
    (data / "recipe.yaml").write_text(yaml.safe_dump({"encoder": encoder, "stages": stages}))
    return "recipe.yaml"


def test_a_recipe_makes_a_model_from_nothing(tercet, recipe, data):
    done = tercet("train", recipe, "--run", "run")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (data / "run" / "metrics.jsonl").read_text().splitlines()]
    for stage, num_steps in (("gaps", 6), ("teach", 20)):
        losses = [line["loss"] for line in lines if line["stage"] == stage]
        assert len(losses) == num_steps
        assert sum(losses[-3:]) < sum(losses[:3])
    encoder = Encoder.load(data / "run" / "encoder", device="cpu")
    texts = (data / "texts.txt").read_text().splitlines()[:9]
    torch.testing.assert_close(
        torch.from_numpy(encoder.embed(texts)),
        torch.from_numpy(SentenceTransformer(str(data / "run" / "encoder"), device="cpu").encode(texts)),
        atol=1e-5,
        rtol=1e-4,
    )
    assert len(list((data / "run" / "teachers").iterdir())) == 2

    again = tercet("train", recipe, "--run", "run")
    assert again.returncode == 0
    changed = ("--set", "stages.teach.temperature=0.1")
    files = {file: file.stat().st_mtime_ns for file in (data / "run" / "teachers").rglob("*.npy")}
    third = tercet("train", recipe, "--run", "run", "--force", *changed)
    assert third.returncode == 0, third.stderr
    assert {file: file.stat().st_mtime_ns for file in (data / "run" / "teachers").rglob("*.npy")} == files


def test_a_killed_distillation_ends_with_the_same_weights(launch, tercet, recipe, data):
    whole = tercet("train", recipe, "--run", "whole")
    assert whole.returncode == 0, whole.stderr
    with launch("train", recipe, "--run", "parts", folder=data) as started:
        kill_when((data / "parts" / "stages" / "03-teach" / "checkpoints" / "step-00000002").exists, started)
    assert tercet("train", recipe, "--run", "parts").returncode == 0
    one, two = (load_file(data / run / "encoder" / "model.safetensors") for run in ("whole", "parts"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("stages.teach.teacher=[]", "stages.teach.distill.teacher: "),
        ("stages.teach.teacher.5.weight=1", "is no place in a list. Take a number below 2"),
        ("stages.gaps.evaluate={}", "denoising has no evaluate"),
        ("stages.pieces.num_pieces=2", "stages.pieces.tokenizer.num_pieces 2"),
        ("stages.teach.piece_vectors=teacher", "stages.teach.distill.piece_vectors: there is no such setting"),
    ],
)
def test_what_does_not_fit_is_refused(tercet, recipe, change, message):
    done = tercet("train", recipe, "--run", "run", "--set", change)
    assert done.returncode != 0
    assert message in done.stderr
