"""Neighbours against a ranking of all texts by numpy."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tercet import Encoder, InputError, SettingError
from tercet.data.feeding import sources
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.stages.mine import neighbours_of
from tercet.vectors import nearest

TEXTS = [f"{who} {what} {n}" for who in ("A man", "Dogs", "Stocks") for what in ("run", "fell") for n in "abcdef"]


def ranking(vectors):
    """For each vector all others, the nearest first: by the cosine of what differs from the mean."""
    vectors = vectors - vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1)


@pytest.mark.parametrize("group", [1, 4, 64])
def test_one_neighbour_of_each_range_of_ranks_is_drawn(group, monkeypatch):
    monkeypatch.setattr(nearest, "_QUERIES", 7)
    monkeypatch.setattr(nearest, "_CORPUS", 11)
    monkeypatch.setattr(nearest, "_GROUP", group)
    vectors = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32) + 2
    wanted = ranking(vectors.astype(np.float64))
    found = [*neighbours_of(torch.from_numpy(vectors), [2, 6, 20], seed=1)]
    assert len(found) == 30
    ranks = np.array([[list(order).index(j) for j in row] for order, row in zip(wanted, found, strict=True)])
    for column, low, high in zip(ranks.T, (0, 2, 6), (2, 6, 20), strict=True):
        assert {*column} <= {*range(low, high)}
        assert len({*column}) > 1
    assert found == [*neighbours_of(torch.from_numpy(vectors), [2, 6, 20], seed=1)]
    assert found != [*neighbours_of(torch.from_numpy(vectors), [2, 6, 20], seed=2)]
    monkeypatch.setattr(nearest, "_QUERIES", 16)
    assert found == [*neighbours_of(torch.from_numpy(vectors), [2, 6, 20], seed=1)]


@pytest.fixture
def recipe(tiny, tmp_path):
    tiny("bert", readout="mean").save(tmp_path / "bert")
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, TEXTS[0]]))
    file = tmp_path / "recipe.yaml"
    file.write_text(f"""
stages:
  - name: neighbours
    mine: {{model: {tmp_path}/bert, rows: {tmp_path}/texts.txt, ranks: [1, 5], max_rows: 20, precision: exact}}
  - name: distill
    distill: {{start: {tmp_path}/bert, teacher: {tmp_path}/bert, rows: "@neighbours", batch: 5, steps: 2,
               learning_rate: 1.0e-4}}
""")
    return file


def test_a_recipe_mines_rows_and_learns_from_them(recipe, tmp_path):
    run_recipe(read_recipe(recipe), run=tmp_path / "run")
    lines = (tmp_path / "run/stages/01-neighbours/rows.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len({row["anchor"] for row in rows}) == len(rows) == 20
    order = ranking(Encoder.load(tmp_path / "bert").embed(TEXTS).astype(np.float64))
    near = [TEXTS[order[TEXTS.index(row["anchor"])][0]] == row["positive"] for row in rows]
    assert np.mean(near) >= 0.9  # vectors are kept in 16 bits, so ties may fall otherwise
    assert all(len({row["anchor"], row["positive"], *row["negatives"]}) == 3 for row in rows)
    assert (tmp_path / "run/encoder/model.safetensors").exists()


def test_neighbours_are_of_texts_from_all_files_even_where_training_keeps_their_order(recipe, tmp_path):
    (tmp_path / "more.txt").write_text("\n".join(f"{text} and more" for text in TEXTS))
    both = f"{{sources: [{tmp_path}/texts.txt, {tmp_path}/more.txt], shuffle: false}}"
    recipe.write_text(recipe.read_text().replace(f"rows: {tmp_path}/texts.txt", f"rows: {both}"))
    run_recipe(read_recipe(recipe), run=tmp_path / "run")
    lines = (tmp_path / "run/stages/01-neighbours/rows.jsonl").read_text().splitlines()
    assert 0 < sum("and more" in json.loads(line)["anchor"] for line in lines) < 20


def test_all_rows_are_drawn_from_however_many_there_are(recipe, tmp_path):
    texts = [f"{text} {letter}" for text in TEXTS for letter in "abcdefghijklmnopqrstuvwxyz"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    run_recipe(read_recipe(recipe, changes=["stages.neighbours.max_rows=5000"]), run=tmp_path / "run")
    lines = (tmp_path / "run/stages/01-neighbours/rows.jsonl").read_text().splitlines()
    assert len(lines) == len(texts) == 936


def test_a_stream_is_refused_by_what_can_be_done_about_it(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(
        sources, "HubRecords", lambda name, **_: SimpleNamespace(commit="first", names=("text",), use=len)
    )
    streamed = 'stages.neighbours.rows={"path": "hub:some/texts", "stream": true}'
    with pytest.raises(SettingError, match=r"^stages\.neighbours\.rows: are streamed, without end\. Set stream: false"):
        run_recipe(read_recipe(recipe, changes=[streamed]), run=tmp_path / "run")


def test_too_few_texts_for_a_rank_are_an_error(recipe, tmp_path):
    with pytest.raises(InputError, match=r"36 texts have no neighbour of rank 40"):
        run_recipe(read_recipe(recipe, changes=["stages.neighbours.ranks=[3,40]"]), run=tmp_path / "run")


@pytest.mark.parametrize("ranks", ["[]", "[0,3]", "[5,5]", "[5,3]"])
def test_ranks_that_do_not_rise_are_refused(recipe, ranks):
    with pytest.raises(SettingError, match="ranks rise"):
        read_recipe(recipe, changes=[f"stages.neighbours.ranks={ranks}"])
