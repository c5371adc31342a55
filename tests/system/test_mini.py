"""The embedded model `mini`: what its card says is so."""

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from tercet import Encoder
from tercet.encoder.names import find_folder
from tercet.evaluate import evaluate

FOLDER = find_folder("mini")
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_mini_is_small_and_in_16_bits():
    files = [file for file in FOLDER.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 32e6
    weights = [weight for file in FOLDER.rglob("*.safetensors") for weight in load_file(file).values()]
    assert {weight.dtype for weight in weights} == {torch.float16}
    assert 8e6 <= sum(weight.numel() for weight in weights) <= 20e6


def test_the_card_has_the_hashes_of_the_weights():
    for file in FOLDER.rglob("*.safetensors"):
        assert hashlib.sha256(file.read_bytes()).hexdigest() in CARD


def test_the_docs_have_the_card():
    assert (Path(__file__).parents[2] / "docs" / "mini.md").read_text(encoding="utf-8") == CARD


def test_mini_puts_what_is_meant_alike_together():
    encoder = Encoder.load("mini")
    near, far = encoder.similarity(
        ["A man is playing a guitar."], ["Someone plays an instrument.", "The stock market fell on Monday."]
    )[0]
    assert near > far + 0.3


def test_plain_sentence_transformers_has_the_same_vectors(sentences):
    theirs = SentenceTransformer(str(FOLDER), device="cpu")
    np.testing.assert_allclose(theirs.encode(sentences), Encoder.load("mini").embed(sentences), atol=1e-5)


@pytest.mark.parametrize("command", ["embed", "search", "evaluate", "export"])
def test_mini_is_the_default_of_every_command_that_embeds(python, tmp_path, command):
    shown = python("-m", "tercet", command, "--help", folder=tmp_path).stdout
    assert re.search(r"\[default:\s*mini\]", shown)


@pytest.mark.skipif("TERCET_DATA" not in os.environ, reason="TERCET_DATA is not set: no real data")
def test_the_card_has_the_scores_on_similarity_tasks(tmp_path):
    tasks = ["STSB-dev", "STS12", "STS14", "STS15"]
    data = Path(os.environ["TERCET_DATA"]) / "eval"
    results = evaluate(Encoder.load("mini"), tasks=tasks, data=data, cache=tmp_path)["tasks"]
    stated = dict(re.findall(r"^\| (\S+) \| ([\d.]+) \|", CARD, re.MULTILINE))
    assert {task: float(stated[task]) for task in tasks} == {
        task: pytest.approx(results[task]["score"], abs=0.02) for task in tasks
    }
