"""A generator/discriminator trained by `tercet train`: what is written, what is selected, and going on after a kill."""

import json

import pytest
import torch
import yaml
from killing import kill_when
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from tercet import Synthesizer
from tercet.synthesis.settings import Sampling

THINGS = "man guitar stage dog snow stock river fence crowd".split()


@pytest.fixture
def recipe(tmp_path, label_tokenizer):
    label_tokenizer.save_pretrained(tmp_path / "tokenizer")
    triplets = [f"the {a} and the {b}\tthe {a}\tno {a}\n" for a in THINGS for b in THINGS if a != b]
    (tmp_path / "triplets.tsv").write_text("anchor\tpositive\tnegative\n" + "".join(triplets[8:]))
    (tmp_path / "dev.tsv").write_text("anchor\tpositive\tnegative\n" + "".join(triplets[:8]))
    labels = ("entailment", "neutral", "contradiction")
    pairs = [f"a {thing} runs\ta {thing}\t{labels[i % 3]}\n" for i, thing in enumerate(THINGS)]
    (tmp_path / "pairs.tsv").write_text("premise\thypothesis\tlabel\n" + "".join(pairs))
    stage = {
        "start": "random:t5-tiny",
        "tokenizer": "tokenizer",
        "rows": ["triplets.tsv", "pairs.tsv"],
        "batch": 8,
        "learning_rate": 3e-3,
        "steps": 8,
        "log_every": 1,
        "checkpoint_every": 2,
        "evaluate": {"rows": "dev.tsv", "every": 3},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"stages": [{"name": "both", "synthesizer": stage}]}))
    return "recipe.yaml"


def test_a_trained_synthesizer_generates_judges_and_is_read_by_transformers(tercet, recipe, tmp_path):
    done = tercet("train", recipe, "--run", "run")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    scores = {line["step"]: line for line in lines if "dev" in line}
    assert list(scores) == [0, 3, 6, 8]
    for line in scores.values():
        assert line["dev"] == pytest.approx(line["accuracy"] - 10 * line["perplexity"])
    record = json.loads((tmp_path / "run" / "stages" / "01-both" / "stage.json").read_text())
    best = max((line for step, line in scores.items() if step), key=lambda line: line["dev"])
    assert record["notes"]["best"] == {"step": best["step"], "score": best["dev"]}
    assert f"best dev {best['dev']:.2f} at step {best['step']}" in done.stderr
    sources = record["inputs"]["rows"]["sources"]
    assert (sources[1]["num_rows"], sources[1]["num_unlabelled"]) == (6, 3)

    folder = tmp_path / "run" / "stages" / "01-both" / "model"
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.d_model == 256
    synthesizer = Synthesizer.load(folder, engine="transformers", device="cpu")
    sampling = Sampling(max_new_tokens=5)
    assert len(synthesizer.generate(["the dog and the man"], relation="entailment", sampling=sampling)) == 1
    assert 0 <= synthesizer.score(["the dog"], ["no dog"])[0] <= 1


def test_a_killed_training_ends_with_the_same_weights(launch, tercet, recipe, tmp_path):
    whole = tercet("train", recipe, "--run", "whole")
    assert whole.returncode == 0, whole.stderr
    with launch("train", recipe, "--run", "parts", folder=tmp_path) as started:
        kill_when((tmp_path / "parts" / "stages" / "01-both" / "checkpoints" / "step-00000004").exists, started)
    assert tercet("train", recipe, "--run", "parts").returncode == 0
    one, two = (
        load_file(tmp_path / run / "stages" / "01-both" / "model" / "model.safetensors") for run in ("whole", "parts")
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    logs = [(tmp_path / run / "metrics.jsonl").read_text() for run in ("whole", "parts")]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("stages.both.lora={}", "lora and trajectory are for encoders"),
        ("stages.both.evaluate.rows=missing.tsv", "missing.tsv"),
        ("stages.both.evaluate.task=STSB-dev", "stages.both.synthesizer.evaluate.task: there is no such setting"),
        ("stages.both.synthesizer.tokenizer=minilm", "no end token"),
        ("stages.both.rows=texts.txt", "texts.txt"),
    ],
)
def test_what_does_not_fit_is_refused(tercet, recipe, change, message):
    done = tercet("train", recipe, "--run", "run", "--set", change)
    assert done.returncode == 2
    assert message in done.stderr
