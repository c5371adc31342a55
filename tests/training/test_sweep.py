"""Sweeps: which runs there are, what is done again, and what the report says of them."""

import json

import pytest
import yaml

import tercet
from tercet import InputError, OutputError, SettingError
from tercet.training.sweep import points_of


def test_a_grid_has_every_combination_once_in_the_order_of_its_values():
    assert points_of(["stages.a.temperature=0.01,0.05", "seed=0,1"]) == {
        "temperature-0.01_seed-0": {"stages.a.temperature": "0.01", "seed": "0"},
        "temperature-0.01_seed-1": {"stages.a.temperature": "0.01", "seed": "1"},
        "temperature-0.05_seed-0": {"stages.a.temperature": "0.05", "seed": "0"},
        "temperature-0.05_seed-1": {"stages.a.temperature": "0.05", "seed": "1"},
    }


def test_folders_have_whole_paths_where_two_end_alike_and_lists_are_values():
    assert list(points_of(["stages.a.batch=4", "stages.b.batch=8"])) == ["stages.a.batch-4_stages.b.batch-8"]
    assert [point["x"] for point in points_of(["x=[1, 2],[3],a/b"]).values()] == ["[1, 2]", "[3]", "a/b"]


@pytest.mark.parametrize("sweep", [["seed"], ["seed="], ["seed=1,,2"], ["seed=1,1"], ["seed=1", "seed=2"]])
def test_a_sweep_without_values_is_refused(sweep):
    with pytest.raises(SettingError, match="seed"):
        points_of(sweep)


@pytest.fixture
def sweep(tmp_path, tiny):
    """Return a function that sweeps over a recipe of one stage, which is scored on a file."""
    tiny("bert", readout="mean").save(tmp_path / "start")
    (tmp_path / "rows.tsv").write_text("anchor\tpositive\n" + "".join(f"A man {i}\tDogs {i}\n" for i in range(8)))
    pairs = [f"Dogs {i} run\tA man {i * 7 % 5}\t{i}\n" for i in range(9)]
    (tmp_path / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(pairs))
    stage = {"rows": str(tmp_path / "rows.tsv"), "batch": 4, "steps": 2, "learning_rate": 1e-3}
    content = {
        "start": str(tmp_path / "start"),
        "stages": [{"name": "a", "contrast": stage}],
        "evaluate": [f"scored:{tmp_path / 'pairs.tsv'}"],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
    return lambda *axes, **more: tercet.train(tmp_path / "recipe.yaml", tmp_path / "out", sweep=axes, **more)


def test_every_run_has_its_values_and_what_is_done_is_skipped(sweep, tmp_path):
    first = sweep("stages.a.temperature=0.05,0.5", "seed=0,1")
    assert {name: run.recipe.stages[0].settings.temperature for name, run in first.runs.items()} == {
        "temperature-0.05_seed-0": 0.05,
        "temperature-0.05_seed-1": 0.05,
        "temperature-0.5_seed-0": 0.5,
        "temperature-0.5_seed-1": 0.5,
    }
    assert [run.recipe.seed for run in first.runs.values()] == [0, 1, 0, 1]
    again = sweep("stages.a.temperature=0.5,1", "seed=1")
    assert [run.stages[0].skipped for run in again.runs.values()] == [True, False]
    assert len(json.loads((tmp_path / "out" / "sweep.json").read_text())["runs"]) == 5
    page, *_ = tercet.report([tmp_path / "out"], out=tmp_path / "report.md")
    table = page.read_text()[page.read_text().index("## Sweeps") :]
    scores = [run.results["tasks"][f"scored:{tmp_path / 'pairs.tsv'}"]["score"] for run in first.runs.values()]
    assert f"{(scores[0] + scores[1]) / 2:.2f}" in table and f"{min(scores[:2]):.2f} to {max(scores[:2]):.2f}" in table
    assert f"{(scores[2] + scores[3]) / 2:.2f}" in table


def test_a_bad_combination_is_found_before_any_run_and_other_folders_are_left_alone(sweep, tmp_path):
    with pytest.raises(SettingError, match="temperature"):
        sweep("stages.a.temperature=0.05,-1")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match=r"holds mine\.txt and is no sweep's"):
        sweep("seed=0")
    (tmp_path / "out" / "mine.txt").unlink()
    (tmp_path / "out" / "sweep.json").write_text('{"runs": {"seed-0": {"seed": "0"}}}')
    with pytest.raises(InputError, match="no run of the sweep has results yet"):
        tercet.report([tmp_path / "out"], out=tmp_path / "report.md")
    with pytest.raises(OutputError, match="is a sweep over seed"):
        sweep("stages.a.batch=4,8")
    (tmp_path / "out" / "sweep.json").write_text("[]")
    with pytest.raises(InputError, match="no record of a sweep"):
        tercet.report([tmp_path / "out"], out=tmp_path / "report.md")


def test_several_processes_cannot_sweep_and_a_recipe_that_was_read_neither(sweep, tmp_path, monkeypatch):
    recipe = sweep("seed=0,1", dry_run=True).runs["seed-1"].recipe
    assert recipe.seed == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(SettingError, match="a recipe that was read"):
        tercet.train(recipe, tmp_path / "out", sweep=["seed=0"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match="is for one process"):
        sweep("seed=0,1")
