"""Finding one's way: models, tasks, recipes, the doctor."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import tercet
from tercet.data.sets.catalogue import FILES, NOT_ON_HUB
from tercet.evaluation.tasks.table import TASKS
from tercet.guide.doctor import missing_extras
from tercet.training.recipe import read_recipe

ROOT = Path(__file__).parents[2]


def test_the_models_that_are_listed_load_as_they_are_described():
    listed = {model.name: model for model in tercet.models()}
    assert {"mini", "mini-synth", "minilm", "random:t5-small"} <= set(listed)
    for name in ("mini", "minilm"):
        encoder = tercet.Encoder.load(name, device="cpu")
        assert (listed[name].dims, listed[name].max_tokens) == (encoder.dim, encoder.tokens.max_tokens)
    assert listed["mini"].about.startswith("A small sentence encoder for English")
    assert listed["mini-synth"].kind == "synthesizer"


def test_every_task_is_listed_with_its_data(tmp_path, monkeypatch):
    monkeypatch.delenv("TERCET_DATA", raising=False)
    assert {task.name for task in tercet.tasks()} == set(TASKS)
    assert {task.ready for task in tercet.tasks()} == {None, True}  # speed needs no data
    for file in FILES["STSB-dev"]:
        (tmp_path / file.path).parent.mkdir(parents=True)
        (tmp_path / file.path).write_text("x")
    (tmp_path / "senteval/STS/STS14-en-test").mkdir()
    (tmp_path / "senteval/STS/STS14-en-test/STS.input.images.txt").write_text("x")
    (tmp_path / "senteval/STS/STS14-en-test/STS.gs.images.txt").write_text("x")
    listed = {task.name: task for task in tercet.tasks(data=tmp_path)}
    assert {name for name, task in listed.items() if task.ready} == {"STSB-dev", "STS14", "speed"}
    assert listed["STSB"].fix == "tercet data fetch STSB"
    assert listed["TwitterURL"].fix == NOT_ON_HUB["TwitterURL"]


def test_every_recipe_is_listed_with_its_stages_and_data(monkeypatch):
    for name in ("TERCET_DATA", "TERCET_DOMAIN", "TERCET_TEXT"):
        monkeypatch.setenv(name, "x")
    listed = {Path(recipe.path).resolve(): recipe for recipe in tercet.recipes()}
    assert set(listed) == set((ROOT / "recipes").rglob("*.yaml"))
    nli = listed[ROOT / "recipes" / "st5-enc-mean-nli.yaml"]
    assert nli.makes == "ST5-Enc mean, NLI: Sentence-T5, Tables 2 and 3. Table 5: --set start=t5-large, t5-3b, t5-11b"
    assert (nli.start, nli.data) == ("t5-base", ["hub:sentence-transformers/nli-for-simcse#triplet"])
    for file, recipe in listed.items():
        assert recipe.stages == [stage.name for stage in read_recipe(file).stages]
        assert recipe.makes


def test_recipes_of_a_folder_that_is_not_there_are_an_error(tmp_path):
    with pytest.raises(tercet.InputError, match="no such folder"):
        tercet.recipes(tmp_path / "none")


def test_an_extra_is_complete_where_all_of_it_is_installed():
    required = [
        "torch>=2",
        'a>=1; extra == "one"',
        'b>=1; extra == "one"',
        "c; extra == 'two'",
        'tercet[one]; extra == "all"',
    ]
    assert missing_extras(required, {"a", "c"}.__contains__) == {"one": ["b"], "two": []}


def test_the_doctor_measures_and_says_what_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setenv("TERCET_DATA", str(tmp_path / "none"))
    found = tercet.doctor(speed=False)
    assert found.versions["torch"] == version("torch")
    assert found.cpu["cores"] >= 1
    assert any(re.search("TERCET_DATA is .*none, which is not there", line) for line in found.advice)
    monkeypatch.delenv("TERCET_DATA")
    assert any("TERCET_DATA is not set" in line for line in tercet.doctor(speed=False).advice)
