"""Optimizers by name, with every argument written out."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tercet.training.adafactor import Adafactor
from tercet.training.settings import LoopSettings

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adafactor": lambda groups, rate: Adafactor(groups, lr=rate, decay=0.8, clip_threshold=1.0, eps=1e-30),
    "adamw": lambda groups, rate: torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.999), eps=1e-8, fused=True),
}


def make_optimizer(module: nn.Module, settings: LoopSettings) -> torch.optim.Optimizer:
    """Return the optimizer of all parameters that are trained; only matrices that are no bias decay."""
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in trained if decays(name, p) is decay], "weight_decay": amount}
        for decay, amount in ((True, settings.weight_decay), (False, 0.0))
    ]
    return _OPTIMIZERS[settings.optimizer]([group for group in groups if group["params"]], settings.learning_rate)


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Return whether weight decay is for this parameter: not for norms, biases and a learnable temperature."""
    return parameter.dim() >= 2 and "bias" not in name
