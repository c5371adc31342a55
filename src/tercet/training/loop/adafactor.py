"""Adafactor as the papers use it: a given learning rate, no first moment, updates scaled by parameters or not."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tercet.training.loop.processes import is_sharded, settled, whole

_LEAST_SCALE = 1e-3
"""What a parameter that is smaller, or still 0, is taken for where updates are scaled."""


class Adafactor(torch.optim.Optimizer):
    """Adam's second moment, kept as one mean a row and one a column of each matrix.

    It is Adafactor in transformers with `relative_step=False`, `warmup_init=False` and `beta1=None`. Unlike that one
    it also updates parameters that are sharded over processes, and it is faster.

    Args:
        params: Parameters, or groups of them.
        lr: The learning rate.
        decay: The second moment's decay at step t is 1 - t**-decay.
        clip_threshold: The largest root mean square of an update, before the rate.
        eps: What is added to squared gradients.
        weight_decay: How much parameters shrink, times the rate.
        scale_parameters: Whether an update is multiplied by the root mean square of its parameter, at least 0.001.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        decay: float = 0.8,
        clip_threshold: float = 1.0,
        eps: float = 1e-30,
        weight_decay: float = 0.0,
        scale_parameters: bool = False,
    ) -> None:
        defaults = {"lr": lr, "decay": decay, "clip_threshold": clip_threshold, "eps": eps}
        super().__init__(params, {**defaults, "weight_decay": weight_decay, "scale_parameters": scale_parameters})
        self._room = torch.empty(0)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        state["step"] = state.get("step", 0) + 1
        decay = 1.0 - math.pow(state["step"], -group["decay"])
        room = self._room_for(gradient)
        squares = torch.mul(gradient, gradient, out=room)
        if gradient.dim() < 2:
            factors = _moving_mean(state, "squares", squares.add_(group["eps"]), decay).rsqrt()
            update = torch.mul(gradient, factors, out=room)
        else:
            rows = _moving_mean(state, "row_squares", _mean(squares, -1).add_(group["eps"]), decay)
            columns = _moving_mean(state, "column_squares", _mean(squares, -2).add_(group["eps"]), decay)
            factors = (rows / _mean(rows, -1).unsqueeze(-1)).rsqrt_().unsqueeze(-1)
            update = torch.mul(gradient, factors, out=room).mul_(columns.rsqrt().unsqueeze(-2))
        rate = group["lr"] / max(1.0, _root_mean_square(update) / group["clip_threshold"])
        if group["scale_parameters"]:
            rate *= max(_LEAST_SCALE, _root_mean_square(parameter))
        if group["weight_decay"]:
            parameter.mul_(1.0 - group["weight_decay"] * group["lr"])
        parameter.sub_(update, alpha=rate)

    def _room_for(self, gradient: Tensor) -> Tensor | None:
        """Return memory for a tensor of this shape, the same for all: new memory would take longer than the update."""
        if is_sharded(gradient):
            return None
        if self._room.numel() < gradient.numel() or self._room.device != gradient.device:
            self._room = torch.empty(gradient.numel(), device=gradient.device)
        return self._room[: gradient.numel()].view(gradient.shape)


def _root_mean_square(values: Tensor) -> float:
    size: float = values.numel() ** 0.5
    return float(whole(values.norm(2))) / size


def _mean(values: Tensor, dim: int) -> Tensor:
    return settled(values.sum(dim)) / values.shape[dim]


def _moving_mean(state: dict[str, Any], name: str, value: Tensor, decay: float) -> Tensor:
    if name not in state:
        state[name] = torch.zeros_like(value)
    mean: Tensor = state[name]
    return mean.mul_(decay).add_(value, alpha=1.0 - decay)
