"""Schedules and optimizers, against tables and references that are written out."""

import math

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from tercet.errors import SettingError
from tercet.storage.settings import checked
from tercet.training.loop.optimizers import make_optimizer
from tercet.training.loop.schedules import rate_at
from tercet.training.loop.settings import LoopSettings

# the learning rate of ten steps whose highest is 1
TABLES = {
    "hold-linear": [1, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8],
    "warmup-linear": [1 / 2, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8],
    "cosine": [
        0.5,
        1.0,
        1.0,
        0.9619397662556434,
        0.8535533905932737,
        0.6913417161825449,
        0.5,
        0.3086582838174551,
        0.14644660940672627,
        0.03806023374435663,
    ],
    "constant": [1] * 10,
}


def loop_settings(**changes):
    return LoopSettings(**{"steps": 10, "learning_rate": 1.0, **changes})


@pytest.mark.parametrize("schedule", TABLES)
def test_a_schedule_is_its_table(schedule):
    settings = loop_settings(schedule=schedule, hold_fraction=0.2, warmup_fraction=0.2)
    rates = [rate_at(step, num_steps=10, settings=settings) for step in range(1, 11)]
    assert rates == pytest.approx(TABLES[schedule], abs=1e-12)


def test_the_default_holds_for_a_tenth_of_the_steps_and_falls_to_nothing():
    settings = LoopSettings(steps=1000, learning_rate=1e-3)
    rates = [rate_at(step, num_steps=1000, settings=settings) for step in range(1, 1001)]
    assert rates[:101] == [1e-3] * 101
    assert np.diff(rates[100:]) == pytest.approx(np.full(899, -1e-3 / 900))
    assert rates[-1] == pytest.approx(1e-3 / 900)


@pytest.mark.parametrize("schedule", TABLES)
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.99])
def test_the_shortest_training_has_a_rate(schedule, fraction):
    settings = loop_settings(schedule=schedule, hold_fraction=fraction, warmup_fraction=fraction)
    assert rate_at(1, num_steps=1, settings=settings) == 1.0


class Parts(nn.Module):
    """One parameter of each kind that an encoder has."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.matrix = nn.Linear(5, 4)
        self.norm = nn.LayerNorm(4)
        self.relative_attention_bias = nn.Embedding(6, 3)
        self.temperature = nn.Parameter(torch.tensor(0.05))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def gradients(num_steps):
    """Return gradients of different sizes, so that updates are clipped in some steps and not in others."""
    generator = torch.Generator().manual_seed(1)
    names = [(name, p) for name, p in Parts().named_parameters() if p.requires_grad]
    return [
        {name: torch.randn(p.shape, generator=generator) * 10 ** (step % 3 - 1) for name, p in names}
        for step in range(num_steps)
    ]


def stepped(optimizer_of, steps):
    """Return the parameters behind some steps with given gradients."""
    module = Parts()
    optimizer = optimizer_of(module)
    for step in steps:
        for name, parameter in module.named_parameters():
            parameter.grad = step[name].clone() if name in step else None
        optimizer.step()
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def adafactor_reference(start, gradient_of_step, *, rate, weight_decay):
    """Adafactor with a given rate in double precision: Shazeer and Stern's Algorithm 4 and 5, no relative step."""
    x = start.numpy().astype(np.float64)
    rows = columns = flat = 0.0
    for t, gradient in enumerate(gradient_of_step, start=1):
        g = gradient.numpy().astype(np.float64)
        beta2 = 1 - t**-0.8
        squares = g**2 + 1e-30
        if g.ndim == 2:
            rows = beta2 * rows + (1 - beta2) * squares.mean(axis=1)
            columns = beta2 * columns + (1 - beta2) * squares.mean(axis=0)
            second = np.outer(rows, columns) / rows.mean()
        else:
            flat = beta2 * flat + (1 - beta2) * squares
            second = flat
        update = g / np.sqrt(second)
        update /= max(1.0, math.sqrt((update**2).mean()) / 1.0)
        x = x - rate * weight_decay * x - rate * update
    return x


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adafactor_is_the_paper_algorithm_with_a_given_rate(weight_decay):
    settings = loop_settings(learning_rate=1e-2, weight_decay=weight_decay)
    steps = gradients(7)
    found = stepped(lambda module: make_optimizer(module, settings), steps)
    for name, start in Parts().named_parameters():
        if name in steps[0]:
            decay = weight_decay if name == "matrix.weight" else 0.0
            expected = adafactor_reference(start.detach(), [s[name] for s in steps], rate=1e-2, weight_decay=decay)
            np.testing.assert_allclose(found[name].numpy(), expected, rtol=0, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("scaled", [False, True])
def test_adafactor_is_the_one_of_transformers(scaled):
    def theirs(module):
        return transformers.Adafactor(
            [p for p in module.parameters() if p.requires_grad],
            lr=1e-3,
            eps=(1e-30, 1e-3),
            clip_threshold=1.0,
            decay_rate=-0.8,
            beta1=None,
            weight_decay=0.0,
            scale_parameter=scaled,
            relative_step=False,
            warmup_init=False,
        )

    steps = gradients(7)
    expected = stepped(theirs, steps)
    settings = loop_settings(learning_rate=1e-3, scale_parameters=scaled)
    found = stepped(lambda module: make_optimizer(module, settings), steps)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-8, msg=name)


def test_adamw_is_torchs_fused_one():
    optimizer = make_optimizer(Parts(), loop_settings(optimizer="adamw", learning_rate=1e-3))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["fused"] is True


def test_every_parameter_has_the_rate_of_the_first_name_that_fits():
    settings = loop_settings(learning_rate=1e-3, rates={"matrix.b": 0.5, "matrix": 0.1})
    module = Parts()
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups = make_optimizer(module, settings).param_groups
    factors = {names[id(parameter)]: group["factor"] for group in groups for parameter in group["params"]}
    wanted = {"matrix.bias": 0.5, "matrix.weight": 0.1}
    assert wanted.items() <= factors.items()
    assert {factor for name, factor in factors.items() if name not in wanted} == {1.0}


@pytest.mark.parametrize("part", ["backbone", "tower"])
def test_names_in_rates_are_those_of_the_model_whatever_it_is_a_part_of(part):
    settings = loop_settings(learning_rate=1e-3, rates={"matrix": 0.1})
    module = torch.nn.ModuleDict({part: torch.nn.ModuleDict({"backbone": Parts()}) if part == "tower" else Parts()})
    factors = [group["factor"] for group in make_optimizer(module, settings).param_groups]
    assert {0.1, 1.0} == set(factors)


def test_a_rate_of_no_parameter_is_refused():
    settings = loop_settings(learning_rate=1e-3, rates={"matrix": 0.1, "encodr": 0.1})
    with pytest.raises(SettingError, match=r"'encodr': no parameter has it in its name\. One of them is temperature"):
        make_optimizer(Parts(), settings)


def test_rmsprop_is_torchs_own_without_decay():
    optimizer = make_optimizer(Parts(), loop_settings(optimizer="rmsprop", learning_rate=1e-3))
    assert type(optimizer) is torch.optim.RMSprop
    assert {(group["alpha"], group["eps"], group["weight_decay"]) for group in optimizer.param_groups} == {
        (0.99, 1e-8, 0)
    }
    with pytest.raises(SettingError, match="weight_decay: rmsprop would add it to gradients"):
        checked(LoopSettings, {"steps": 1, "learning_rate": 1, "optimizer": "rmsprop", "weight_decay": 0.1})


@pytest.mark.parametrize("optimizer", ["adafactor", "adamw"])
def test_only_matrices_decay_and_frozen_parameters_stay(optimizer):
    steps = [{name: torch.zeros_like(value) for name, value in gradients(1)[0].items()}]
    settings = loop_settings(optimizer=optimizer, learning_rate=0.1, weight_decay=0.5)
    found = stepped(lambda module: make_optimizer(module, settings), steps)
    changed = {name for name, start in Parts().named_parameters() if not torch.equal(found[name], start)}
    assert changed == {"matrix.weight"}
    torch.testing.assert_close(found["matrix.weight"], Parts().matrix.weight.detach() * 0.95)
