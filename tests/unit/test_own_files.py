"""Files of one's own that cannot be scored: the error says which line or label, in the user's words."""

import json

import pytest

from tercet import InputError, RowError
from tercet.evaluate import evaluate

HALF = "a \ud83d b"
"""The first half of a character that JSON may write as a pair."""


@pytest.mark.parametrize(
    ("kind", "row", "column"),
    [
        ("scored", {"sentence1": "a", "sentence2": HALF, "score": 1}, "sentence2"),
        ("rerank", {"query": HALF, "candidate": "b", "label": 1}, "query"),
        ("labelled", {"text": "a", "label": HALF}, "label"),
        ("triplets", {"anchor": HALF, "positive": "b", "negative": "c"}, "anchor"),
    ],
)
def test_half_a_character_is_named_by_file_and_line(tmp_path, tiny, kind, row, column):
    whole = {name: 2 if name == "score" else "x" for name in row}
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(whole) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(RowError, match=rf"mine\.jsonl:2: '{column}' has half a surrogate pair"):
        evaluate(tiny(), tasks=[f"{kind}:{path}"])


@pytest.mark.parametrize("cache", [None, "cache"])
def test_half_a_character_elsewhere_names_the_task(tmp_path, tiny, cache):
    forums = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()
    folder = tmp_path / "cqadupstack"
    folder.mkdir()
    (folder / "corpus.json").write_text(json.dumps({forum: {"1": "x", "2": HALF} for forum in forums}))
    (folder / "retrieval_split.json").write_text(json.dumps({"test": {forum: {"1": ["2"]} for forum in forums}}))
    with pytest.raises(InputError, match="CQADupStack: text 0: is not Unicode"):
        evaluate(tiny(), tasks="CQADupStack", data=tmp_path, cache=cache and tmp_path / cache)
