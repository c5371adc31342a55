"""The embedded models `mini` and `mini-synth`: what their cards say is so."""

import hashlib
import os
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from tercet import Encoder, Synthesizer
from tercet.encoder.folder.names import find_folder
from tercet.evaluation.evaluate import evaluate

FOLDER = find_folder("mini")
CARD = (FOLDER / "README.md").read_text(encoding="utf-8")
REPOSITORY = Path(__file__).parents[2]
needs_data = pytest.mark.skipif("TERCET_DATA" not in os.environ, reason="TERCET_DATA is not set: no real data")
both = pytest.mark.parametrize("name", ["mini", "mini-synth"])


@pytest.mark.parametrize(
    ("name", "dtype", "max_bytes"), [("mini", torch.float16, 40e6), ("mini-synth", torch.int8, 55e6)]
)
def test_a_model_in_the_package_is_small_and_in_few_bits(name, dtype, max_bytes):
    files = [file for file in find_folder(name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= max_bytes  # both together leave the wheel below 95 MB
    weights = [weight for file in find_folder(name).rglob("*.safetensors") for weight in load_file(file).values()]
    assert {weight.dtype for weight in weights if weight.ndim > 1} == {dtype}


@both
def test_a_card_has_the_hashes_of_the_weights(name):
    card = (find_folder(name) / "README.md").read_text(encoding="utf-8")
    files = list(find_folder(name).rglob("*.safetensors"))
    assert files
    assert all(hashlib.sha256(file.read_bytes()).hexdigest() in card for file in files)


@both
def test_the_docs_have_the_card(name):
    card = (find_folder(name) / "README.md").read_text(encoding="utf-8")
    assert (REPOSITORY / "docs" / f"{name}.md").read_text(encoding="utf-8") == card


def test_mini_synth_tells_what_follows_from_what_does_not():
    synthesizer = Synthesizer.load("mini-synth")
    premises = ["A man is playing a guitar on the stage."] * 2
    follows, contradicts = synthesizer.score(premises, ["A man is playing music.", "The man is asleep in his bed."])
    assert follows > 0.9
    assert contradicts < 0.1


def test_mini_synth_writes_capital_letters_in_sentences_and_titles():
    synthesizer, text = Synthesizer.load("mini-synth"), "Anna Schmidt took the train from Berlin to Hamburg on Monday."
    for relation in ("entailment", "contradiction", "title"):
        [samples] = synthesizer.generate([text], relation=relation, num_samples=8)
        assert any(set("ABHMS") & set(sample) for sample in samples)


@needs_data
def test_the_card_of_mini_synth_has_its_accuracy():
    scores = runpy.run_path(str(REPOSITORY / "recipes" / "models" / "synth_scores.py"))
    pairs = scores["snli_test"](Path(os.environ["TERCET_DATA"]) / "eval" / "snli")
    judged = Synthesizer.load("mini-synth").score(
        *([getattr(p, side) for p in pairs] for side in ("premise", "hypothesis"))
    )
    wanted = np.array([pair.label == "entailment" for pair in pairs])
    card = (find_folder("mini-synth") / "README.md").read_text(encoding="utf-8")
    stated = re.search(r"^\| premise and hypothesis \| ([\d.]+) \|", card, re.MULTILINE)
    assert stated
    assert 100 * np.mean((judged > 0.5) == wanted) == pytest.approx(float(stated[1]), abs=0.1)


def test_mini_puts_what_is_meant_alike_together():
    encoder = Encoder.load("mini")
    near, far = encoder.similarity(
        ["A man is playing a guitar."], ["Someone plays an instrument.", "The stock market fell on Monday."]
    )[0]
    assert near > far + 0.3


def test_mini_reads_words_in_their_order():
    pairs = [("A man bites a dog.", "A dog bites a man."), ("The cat chased the dog.", "The dog chased the cat.")]
    encoder = Encoder.load("mini")
    assert all(float(encoder.similarity([one], [other])[0, 0]) < 0.998 for one, other in pairs)  # 0.9999 without places


def test_plain_sentence_transformers_has_the_same_vectors(sentences):
    theirs = SentenceTransformer(str(FOLDER), device="cpu")
    np.testing.assert_allclose(theirs.encode(sentences), Encoder.load("mini").embed(sentences), atol=1e-5)


@pytest.mark.parametrize("command", ["embed", "search", "evaluate", "export"])
def test_mini_is_the_default_of_every_command_that_embeds(python, tmp_path, command):
    shown = python("-m", "tercet", command, "--help", folder=tmp_path).stdout
    assert re.search(r"\[default:\s*mini\]", shown)


@needs_data
def test_the_card_has_the_scores_on_similarity_tasks(tmp_path):
    tasks = ["STSB-dev", "STS12", "STS14", "STS15"]
    data = Path(os.environ["TERCET_DATA"]) / "eval"
    results = evaluate(Encoder.load("mini"), tasks=tasks, data=data, cache=tmp_path)["tasks"]
    stated = dict(re.findall(r"^\| (\S+) \| ([\d.]+) \|", CARD, re.MULTILINE))
    assert {task: float(stated[task]) for task in tasks} == {
        task: pytest.approx(results[task]["score"], abs=0.02) for task in tasks
    }
