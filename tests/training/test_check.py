"""Rows are looked at before training: repetitions, lengths, cosines under the start, and advice."""

import numpy as np
import pytest
import yaml

from tercet import Encoder, InputError
from tercet.training.check import check


@pytest.fixture
def recipe(tiny, tmp_path):
    """Return a function that writes a recipe with these rows."""
    tiny("bert", readout="mean").save(tmp_path / "start")

    def write(rows, columns="anchor\tpositive\tnegative", stages=(), **more):
        (tmp_path / "rows.tsv").write_text("\n".join([columns, *("\t".join(row) for row in rows)]) + "\n")
        stage = {"rows": str(tmp_path / "rows.tsv"), "batch": 2, "steps": 1, "learning_rate": 1e-3, **more}
        content = {"start": str(tmp_path / "start"), "stages": [{"name": "a", "contrast": stage}, *stages]}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
        return tmp_path / "recipe.yaml"

    return write


ROWS = [(f"a man plays {i}", f"somebody plays {i}", f"nobody sings {i * i}") for i in range(6)]


def test_cosines_are_those_of_the_encoder_that_training_starts_from(recipe, tmp_path):
    found = check(recipe(ROWS))["a"]
    vectors = [
        Encoder.load(tmp_path / "start").embed(list(column), normalize=True) for column in zip(*ROWS, strict=True)
    ]
    own = (vectors[0] * vectors[1]).sum(1)
    hard = (vectors[0] * vectors[2]).sum(1)
    scores = vectors[0] @ vectors[1].T
    others = scores[~np.eye(6, dtype=bool)]
    for name, wanted in {"positives": own, "negatives": hard, "others": others}.items():
        assert found.cosines[name].mean == pytest.approx(wanted.mean(), abs=1e-5)
        assert sum(found.cosines[name].histogram) == pytest.approx(1)
        assert found.cosines[name].histogram[9] == pytest.approx((wanted >= 0.9).mean())
    assert found.false_negatives == pytest.approx(((scores > own[:, None]) & ~np.eye(6, dtype=bool)).any(1).mean())
    assert found.hard_above == pytest.approx((hard > own).mean())
    assert (found.num_rows, found.duplicates, found.repeated) == (6, 0, 0)


def test_repetitions_are_found_whatever_their_capitals_and_named_in_the_advice(recipe):
    rows = [*ROWS, ("A man plays 0!", "somebody plays 0", "nobody sings 0"), ("a man plays 1", "new", "old")]
    found = check(recipe(rows))["a"]
    assert found.duplicates == pytest.approx(1 / 8)
    assert found.repeated == pytest.approx(2 / 8)
    assert "12.5% of the rows repeat others: tercet dedup" in found.advice[0]
    assert "mask_duplicates: true" in found.advice[1]


def test_an_equal_text_is_no_false_negative(recipe):
    rows = [("a man plays", "somebody plays"), ("a man sings", "Somebody plays.")]
    assert check(recipe(rows, columns="anchor\tpositive"))["a"].false_negatives == 0


def test_texts_that_training_cuts_are_counted(recipe):
    rows = [*ROWS[:3], ("word " * 40, "word " * 40, "short")]
    found = check(recipe(rows, max_tokens=16))["a"]
    assert found.truncated == pytest.approx(2 / 12)
    assert found.tokens["most"] > 16
    assert any("16.7% of the texts are cut: raise max_tokens" in line for line in found.advice)


def test_stages_whose_rows_are_not_there_yet_are_left_out(recipe):
    stage = {"rows": "@pairs", "batch": 2, "steps": 1, "learning_rate": 1e-3, "start": "@a"}
    later = [
        {"name": "pairs", "views": {"sentences": ["rows.tsv"]}},
        {"name": "b", "contrast": stage},
    ]
    written = recipe(ROWS)
    content = yaml.safe_load(written.read_text())
    content["stages"] += later
    content["stages"][1]["views"]["sentences"] = [content["stages"][0]["contrast"]["rows"]]
    written.write_text(yaml.safe_dump(content))
    assert [*check(written)] == ["a"]
    content["stages"] = content["stages"][1:]
    content["stages"][1]["contrast"]["start"] = content["start"]
    written.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match="has no stage that trains an encoder on rows that are there"):
        check(written)
