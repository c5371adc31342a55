"""The embedded model `mini-synth`: what its card says is so."""

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tercet import Synthesizer
from tercet.encoder.names import find_folder

FOLDER = find_folder("mini-synth")
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def synthesizer():
    return Synthesizer.load("mini-synth", device="cpu", engine="transformers")


def test_mini_synth_is_small_and_in_16_bits():
    files = [file for file in FOLDER.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 32e6
    weights = load_file(FOLDER / "model.safetensors").values()
    assert {weight.dtype for weight in weights} == {torch.float16}
    assert 8e6 <= sum(weight.numel() for weight in weights) <= 20e6


def test_the_card_has_the_hash_of_the_weights():
    assert hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest() in CARD


def test_the_docs_have_the_card():
    assert (Path(__file__).parents[2] / "docs" / "mini-synth.md").read_text(encoding="utf-8") == CARD


def test_it_shares_the_pieces_of_mini():
    assert (FOLDER / "tokenizer.json").read_bytes() == (find_folder("mini") / "tokenizer.json").read_bytes()


def test_it_tells_what_follows_from_what_contradicts(synthesizer):
    premise = "A man in a red shirt is playing a guitar on the street."
    true, false = synthesizer.score([premise] * 2, ["A man is playing an instrument.", "The man sleeps in his bed."])
    assert true > 0.7
    assert false < 0.3


def test_it_writes_other_sentences_of_several_words(synthesizer):
    premises = ["Two children are running across a field with their dog.", "She put the soup on the stove."]
    for relation in ("entailment", "contradiction"):
        for premise, (written,) in zip(premises, synthesizer.generate(premises, relation=relation), strict=True):
            assert len(written.split()) >= 2
            assert written != premise


@pytest.mark.skipif("TERCET_DATA" not in os.environ, reason="TERCET_DATA is not set: no real data")
def test_the_card_has_its_accuracy_on_snli(synthesizer):
    folder = Path(os.environ["TERCET_DATA"]) / "eval" / "snli"
    columns = [(folder / f"{name}.test").read_text(encoding="utf-8").splitlines() for name in ("s1", "s2", "labels")]
    rows = [row for row in zip(*columns, strict=True) if row[2] in ("entailment", "contradiction")]
    premises, hypotheses, labels = zip(*rows, strict=True)
    right = (synthesizer.score(premises, hypotheses) > 0.5) == (np.array(labels) == "entailment")
    (stated,) = re.findall(r"^\| discriminator \| ([\d.]+) \|", CARD, re.MULTILINE)
    assert 100 * right.mean() == pytest.approx(float(stated), abs=0.1)
