"""The log of a training goes to loggers by name: the same numbers as in the run's own file."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from tercet import SettingError
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe


@pytest.fixture
def run(tiny, tmp_path):
    """Return a function that trains four steps, and returns the numbers of its log by step."""
    tiny("bert", readout="mean").save(tmp_path / "start")
    (tmp_path / "rows.tsv").write_text("anchor\tpositive\n" + "".join(f"A man {i}\tDogs {i}\n" for i in range(8)))
    stage = {"rows": str(tmp_path / "rows.tsv"), "batch": 4, "steps": 4, "learning_rate": 1e-3, "log_every": 1}
    content = {"start": str(tmp_path / "start"), "stages": [{"name": "a", "contrast": stage}]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))

    def go(*loggers):
        run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "run", loggers=loggers)
        lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
        return {line["step"]: {name: v for name, v in line.items() if isinstance(v, float)} for line in lines}

    return go


def test_weights_and_biases_gets_every_number(run, monkeypatch, tmp_path):
    calls, logged = [], {}
    module = ModuleType("wandb")

    def init(**about):
        calls.append(about)
        return SimpleNamespace(log=lambda numbers, step: logged.update({step: numbers}))

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    assert run("wandb") == logged and len(logged) >= 4
    [about] = calls
    assert (about["project"], about["group"], about["name"], about["resume"]) == ("tercet", "run", "run/a", "allow")


def test_mlflow_gets_every_number(run, monkeypatch):
    logged, made = {}, []

    class Client:
        def get_experiment_by_name(self, name):
            assert name == "tercet"

        def create_experiment(self, name):
            return "7"

        def create_run(self, experiment, run_name, tags):
            made.append((experiment, run_name))
            return SimpleNamespace(info=SimpleNamespace(run_id="9"))

        def log_metric(self, run_id, name, value, step):
            assert run_id == "9"
            logged.setdefault(step, {})[name] = value

    module = ModuleType("mlflow")
    module.MlflowClient = Client
    monkeypatch.setitem(sys.modules, "mlflow", module)
    assert run("mlflow") == logged and made == [("7", "run/a")]


def test_a_logger_that_is_unknown_or_not_installed_is_named(run, monkeypatch):
    with pytest.raises(SettingError, match="loggers 'tensorbord': there is none of that name"):
        run("tensorbord")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SettingError, match=r"wandb: is not installed\. Run: pip install wandb"):
        run("wandb")
