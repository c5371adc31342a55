"""The card of an encoder: what it is, how it was trained, what it scores, how it is loaded."""

import re

import pytest
import yaml

from tercet import Encoder
from tercet.storage.verify import verify
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe


def code_of(card, word):
    """Return the block of Python in a card that has a word."""
    [code] = [block for block in re.findall(r"```python\n(.+?)```", card, re.DOTALL) if word in block]
    return code


@pytest.mark.parametrize("settings", [{}, {"readout": "encdec-first", "prompt": "gense"}], ids=["theirs", "ours"])
def test_a_saved_encoder_says_what_it_is_and_how_it_is_loaded(tiny, tmp_path, settings):
    encoder = tiny("t5", **settings)
    encoder.save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert head["library_name"] == "sentence-transformers" and "tercet" in head["tags"]
    assert f"| vectors | {encoder.dim} numbers, of length 1" in card
    assert f"{encoder.num_parameters / 1e6:,.1f}M parameters" in card
    assert f"`{encoder.settings.readout}`" in card
    assert ("`[X] Question" in card) == bool(settings)
    for word, name in (("Encoder.load", "encoder"), ("SentenceTransformer(", "model")):
        code, scope = code_of(card, word), {}
        exec(code.replace("PATH_OR_HUB_ID", str(tmp_path / "model")), scope)
        vectors = scope[name].encode(["A man plays a guitar."])
        assert abs(vectors - encoder.embed(["A man plays a guitar."])).max() < 1e-5


def test_a_card_may_be_edited(tiny, tmp_path):
    tiny("bert", readout="mean").save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("# Mine\n")
    assert verify(tmp_path / "model").is_whole
    assert Encoder.load(tmp_path / "model").dim


def test_a_run_says_what_its_encoder_learned_from_and_what_it_scores(tiny, tmp_path):
    tiny("bert", readout="mean").save(tmp_path / "start")
    (tmp_path / "rows.tsv").write_text("anchor\tpositive\n" + "".join(f"A man {i}\tDogs {i}\n" for i in range(8)))
    (tmp_path / "data" / "zh_stsb").mkdir(parents=True)
    (tmp_path / "data" / "zh_stsb" / "sts-b-test.txt").write_text(
        "".join(f"a {i}\tb {i * i}\t{i / 2}\n" for i in range(9))
    )
    stage = {"rows": str(tmp_path / "rows.tsv"), "batch": 4, "steps": 2, "learning_rate": 1e-3}
    content = {"start": str(tmp_path / "start"), "stages": [{"name": "a", "contrast": stage}], "evaluate": ["ZH-STSB"]}
    (tmp_path / "two-steps.yaml").write_text(yaml.safe_dump(content))
    result = run_recipe(read_recipe(tmp_path / "two-steps.yaml"), tmp_path / "run", data=tmp_path / "data")
    file = tmp_path / "run" / "encoder" / "README.md"
    card = file.read_text()
    assert "# two-steps\n" in card
    assert re.search(r"\| a \| contrast \| start \| rows\.tsv \(8 rows\) \| batch 4, .*2 steps \|", card)
    score = result.results.tasks["ZH-STSB"]
    assert f"| ZH-STSB | spearman | {score['score']:.2f} | 9 | {score['protocol']}" in card
    assert str(tmp_path) not in card
    assert verify(tmp_path / "run").is_whole
    again = run_recipe(read_recipe(tmp_path / "two-steps.yaml"), tmp_path / "run", data=tmp_path / "data")
    assert again.stages[0].skipped and file.read_text() == card
