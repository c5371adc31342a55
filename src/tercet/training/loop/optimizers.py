"""Optimizers by name, with every argument written out."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from tercet.errors import SettingError
from tercet.training.loop.adafactor import Adafactor
from tercet.training.loop.settings import LoopSettings

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adafactor": lambda groups, rate: Adafactor(groups, lr=rate, decay=0.8, clip_threshold=1.0, eps=1e-30),
    "adamw": lambda groups, rate: torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.999), eps=1e-8, fused=True),
}


def make_optimizer(module: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    """Return the optimizer of all parameters that are trained; only matrices that are no bias decay.

    Raises:
        SettingError: No parameter has a name that begins as one of the rates says.
    """
    trained = {_model_name(name): parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    for start in settings.rates:
        if not any(name.startswith(start) for name in trained):
            first = sorted({name.partition(".")[0] for name in trained})
            raise SettingError(f"rates {start!r}: no parameter's name begins so. They begin with: {', '.join(first)}.")
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        groups.setdefault((decays(name, parameter), _factor(name, settings.rates)), []).append(parameter)
    return _OPTIMIZERS[settings.optimizer](
        [
            {"params": parameters, "weight_decay": settings.weight_decay if decay else 0.0, "factor": factor}
            for (decay, factor), parameters in sorted(groups.items(), key=lambda group: group[0], reverse=True)
        ],
        settings.learning_rate,
    )


def _model_name(name: str) -> str:
    """Return the name that a parameter has in its own model, without what the model is a part of."""
    return name.removeprefix("tower.").removeprefix("backbone.")


def _factor(name: str, rates: Mapping[str, float]) -> float:
    return next((factor for start, factor in rates.items() if name.startswith(start)), 1.0)


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Return whether weight decay is for this parameter: not for norms, biases and a learnable temperature."""
    return parameter.dim() >= 2 and "bias" not in name
