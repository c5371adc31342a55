"""The gradient as a whole: its norm, its limit, and whether it is a number at all."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tercet.training.loop.processes import is_sharded, whole

NamedParameters = Sequence[tuple[str, nn.Parameter]]


def first_bad_weight(parameters: NamedParameters) -> str | None:
    """Return the name of the first parameter that is not finite, or so large that its norm is not; None where none is.

    All of them are looked at together first, which costs a small part of a step.
    """
    if math.isfinite(_total([p.detach() for _, p in parameters if not is_sharded(p)])) and math.isfinite(
        _total([p.detach() for _, p in parameters if is_sharded(p)])
    ):
        return None
    return next((name for name, parameter in parameters if not math.isfinite(_norm(parameter.detach()))), "all weights")


def _total(tensors: list[Tensor]) -> float:
    return float(whole(torch.nn.utils.get_total_norm(tensors))) if tensors else 0.0


def clip_gradients(parameters: NamedParameters, limit: float | None) -> float:
    """Scale the gradient down to a norm where it is larger, and return the norm that it had.

    A norm that is not finite is returned as it is, and nothing is scaled.
    """
    sharded = [p.grad for _, p in parameters if p.grad is not None and is_sharded(p)]
    plain = [p.grad for _, p in parameters if p.grad is not None and not is_sharded(p)]
    norm = math.hypot(_total(sharded), _total(plain))
    if limit is not None and math.isfinite(norm) and norm > limit:
        for gradient in (*sharded, *plain):
            gradient.mul_(limit / norm)
    return norm


def first_not_finite(parameters: NamedParameters) -> str:
    """Return the name of the first parameter whose gradient has a norm that is not finite."""
    for name, parameter in parameters:
        if parameter.grad is not None and not math.isfinite(_norm(parameter.grad)):
            return name
    return "all parameters together"


def _norm(gradient: Tensor) -> float:
    return float(whole(gradient.norm()))
