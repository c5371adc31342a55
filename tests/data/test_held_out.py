"""Rows in two parts: how many are held out, that no anchor is in both, and what cannot be divided."""

import json

import pytest

from tercet import InputError, SettingError
from tercet.data.feeding.held_out import split_rows
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.settings import HeldOutRule, RowSettings


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def triplets(first, last, *, each=2):
    texts = [(i, k) for i in range(first, last) for k in range(each)]
    return [{"anchor": f"anchor {i}", "positive": f"yes {i} {k}", "negative": f"no {i} {k}"} for i, k in texts]


def parts(sources, held_out, *, kind="triplets"):
    divided = split_rows(RowSettings.of(sources), held_out, kind=kind)
    return [[*open_rows(part, kind=kind)] for part in divided]


@pytest.mark.parametrize(
    ("num_anchors", "held_out", "num_held_out"),
    [
        (10, HeldOutRule(rows=100, least=0.1, most=0.3), 3),
        (250, HeldOutRule(rows=100, least=0.1, most=0.3), 50),
        (2_500, HeldOutRule(rows=100, least=0.1, most=0.3), 250),
        (50, HeldOutRule(rows=10), 5),
        (50, 0.1, 5),
        (50, 0.001, 1),
        (2, 0.9, 1),
    ],
)
def test_the_wanted_share_of_the_anchors_is_held_out_exactly(tmp_path, num_anchors, held_out, num_held_out):
    rows = triplets(0, num_anchors)
    learned, scored = parts(write(tmp_path / "rows.jsonl", rows), held_out)
    assert len(scored) == 2 * num_held_out == 2 * len({row.anchor for row in scored})
    assert len(learned) == len(rows) - len(scored)
    assert not {row.anchor for row in learned} & {row.anchor for row in scored}


def test_an_anchor_of_several_sources_is_on_one_side(tmp_path):
    sources = [write(tmp_path / f"{i}.jsonl", triplets(20 * i, 20 * i + 40, each=1)) for i in range(2)]
    learned, scored = parts(sources, 0.25)
    assert len(learned) + len(scored) == 80 and len({row.anchor for row in scored}) == 15
    assert not {row.anchor for row in learned} & {row.anchor for row in scored}


def test_a_source_may_lie_on_one_side_as_a_whole(tmp_path):
    many, one = (write(tmp_path / f"{num}.jsonl", triplets(0, num)) for num in (40, 1))
    for settings in ([many, one], [one, many]):
        assert sum(map(len, parts(settings, 0.25))) == 82


def test_an_interval_is_divided_and_what_is_outside_of_it_is_in_neither_part(tmp_path):
    path = write(tmp_path / "rows.jsonl", triplets(0, 100))
    learned, scored = parts({"path": path, "share": [0.2, 0.7]}, 0.5)
    inside = [*open_rows({"path": path, "share": [0.2, 0.7]}, kind="triplets")]
    assert {*learned} | {*scored} == {*inside} and len(learned) + len(scored) == len(inside)
    assert abs(len(learned) - len(scored)) <= 2


def test_premises_are_held_out_whole_and_as_triplets_they_are_the_same(tmp_path):
    labels = ("entailment", "contradiction", "neutral")
    pairs = [
        {"premise": f"premise {i}", "hypothesis": f"{name} {i}", "label": name} for i in range(30) for name in labels
    ]
    path = write(tmp_path / "nli.jsonl", pairs)
    learned, scored = split_rows(RowSettings.of(path), 0.2, kind="nli")
    premises = [{row.premise for row in open_rows(part, kind="nli")} for part in (learned, scored)]
    assert [len(part) for part in premises] == [24, 6] and not premises[0] & premises[1]
    assert {row.anchor for row in open_rows(scored, kind="triplets")} == premises[1]


def test_what_cannot_be_divided_is_refused(tmp_path):
    path = write(tmp_path / "rows.jsonl", triplets(0, 5))
    with pytest.raises(SettingError, match=r"rows\.jsonl: no part of the share 0\.5 .+ \[0, 0\.5\]\."):
        parts({"path": path, "share": 0.5}, 0.1)
    with pytest.raises(SettingError, match=r"hub:a/b: no part of a stream .+ Set stream: false"):
        parts({"path": "hub:a/b", "stream": True}, 0.1)
    with pytest.raises(InputError, match=r"one\.jsonl: all rows have one anchor"):
        parts(write(tmp_path / "one.jsonl", triplets(0, 1, each=5)), 0.1)
