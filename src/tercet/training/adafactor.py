"""Adafactor as the papers use it: a given learning rate, no scaling by the size of parameters, no first moment."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Adafactor(torch.optim.Optimizer):
    """Adam's second moment, kept as one mean a row and one a column of each matrix.

    It equals Adafactor in transformers with `scale_parameter=False`, `relative_step=False`, `warmup_init=False` and
    `beta1=None`; unlike that one it also updates parameters that are sharded over processes.

    Args:
        params: Parameters, or groups of them.
        lr: The learning rate.
        decay: The second moment's decay at step t is 1 - t**-decay.
        clip_threshold: The largest root mean square of an update, before the rate.
        eps: What is added to squared gradients.
        weight_decay: How much parameters shrink, times the rate.
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
    ) -> None:
        defaults = {"lr": lr, "decay": decay, "clip_threshold": clip_threshold, "eps": eps}
        super().__init__(params, {**defaults, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        if gradient is None:
            return
        state["step"] = state.get("step", 0) + 1
        decay = 1.0 - math.pow(state["step"], -group["decay"])
        squares = gradient.square().add_(group["eps"])
        if gradient.dim() < 2:
            update = _moving_mean(state, "squares", squares, decay).rsqrt()
        else:
            rows = _moving_mean(state, "row_squares", squares.mean(-1), decay)
            columns = _moving_mean(state, "column_squares", squares.mean(-2), decay)
            row_factors = (rows / rows.mean(-1, keepdim=True)).rsqrt_().unsqueeze(-1)
            update = row_factors * columns.unsqueeze(-2).rsqrt()
        update = update.mul_(gradient)
        size = update.norm(2) / update.numel() ** 0.5
        update.div_((size / group["clip_threshold"]).clamp_(min=1.0)).mul_(group["lr"])
        if group["weight_decay"]:
            parameter.mul_(1.0 - group["weight_decay"] * group["lr"])
        parameter.sub_(update)


def _moving_mean(state: dict[str, Any], name: str, value: Tensor, decay: float) -> Tensor:
    if name not in state:
        state[name] = value.new_zeros(value.shape)
    mean: Tensor = state[name]
    return mean.mul_(decay).add_(value, alpha=1.0 - decay)
