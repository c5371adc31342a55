"""Optimizers by name, with every argument written out."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tercet.errors import SettingError
from tercet.training.loop.adafactor import Adafactor
from tercet.training.loop.settings import LoopSettings

_OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], LoopSettings], torch.optim.Optimizer]] = {
    "adafactor": lambda groups, settings: Adafactor(
        groups,
        lr=settings.learning_rate,
        decay=0.8,
        clip_threshold=1.0,
        eps=1e-30,
        scale_parameters=settings.scale_parameters,
    ),
    "adamw": lambda groups, settings: torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(0.9, 0.999), eps=1e-8, fused=True
    ),
    "rmsprop": lambda groups, settings: torch.optim.RMSprop(
        groups, lr=settings.learning_rate, alpha=0.99, eps=1e-8, momentum=0, foreach=True
    ),
}


def make_optimizer(module: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    """Return the optimizer of all parameters that are trained; only matrices that are no bias decay.

    Raises:
        SettingError: No parameter has a name with a part that one of the rates is for.
    """
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    for part in settings.rates:
        if not any(_has_part(name, part) for name in trained):
            raise SettingError(
                f"rates {part!r}: no parameter has it in its name. One of them is {next(iter(trained))}."
            )
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        groups.setdefault((decays(name, parameter), _factor(name, settings.rates)), []).append(parameter)
    return _OPTIMIZERS[settings.optimizer](
        [
            {"params": parameters, "weight_decay": settings.weight_decay if decay else 0.0, "factor": factor}
            for (decay, factor), parameters in sorted(groups.items(), key=lambda group: group[0], reverse=True)
        ],
        settings,
    )


def _factor(name: str, rates: Mapping[str, float]) -> float:
    return next((factor for part, factor in rates.items() if _has_part(name, part)), 1.0)


def _has_part(name: str, part: str) -> bool:
    """Return whether a parameter's name, from one of its dots on, begins with a part of it."""
    return f".{part}" in f".{name}"


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Return whether weight decay is for this parameter: not for norms, biases and a learnable temperature."""
    return parameter.dim() >= 2 and "bias" not in name
