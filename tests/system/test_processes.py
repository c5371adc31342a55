"""Two processes that exchange vectors against one with the whole batch."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tercet.training.objectives.compute import ComputeSettings

SCRIPT = Path(__file__).with_name("one_of_several.py")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("one_of_several", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """Return the folder with a model and what two processes have computed with it."""
    folder = tmp_path_factory.mktemp("processes")
    tiny("t5", readout="enc-mean", projection=24).save(folder / "model")
    tiny("t5", readout="encdec-first", projection=24).save(folder / "model-decoder")
    tiny("bert", readout="mean", projection=24).save(folder / "source")
    children = [
        subprocess.Popen([sys.executable, SCRIPT, str(rank), "2", folder], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [child.communicate(timeout=300)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0], "".join(errors)
    return folder


@pytest.mark.parametrize(
    "case",
    [
        "contrast",
        "classify",
        "sharded",
        "sharded-decoder",
        "parallel",
        "parallel-sharded",
        "dual",
        "multilingual",
        "distill",
        "tension",
    ],
)
def test_two_processes_give_the_loss_and_gradients_of_one(folder, script, case):
    encoder = script.model_of(case, folder)
    result, wanted = script.take_step(script.CASES[case][0], encoder, slice(None), ComputeSettings(), folder)
    for rank in range(2):
        found = load_file(folder / f"{case}-{rank}.safetensors")
        torch.testing.assert_close(found.pop("loss").item(), result.loss, atol=1e-5, rtol=1e-5)
        metrics = {key.removeprefix("metric:"): found.pop(key).item() for key in list(found) if "metric:" in key}
        torch.testing.assert_close(metrics, result.metrics, atol=1e-5, rtol=1e-5)
        assert found.keys() == wanted.keys()
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
