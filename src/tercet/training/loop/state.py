"""What a checkpoint holds of a module and an optimizer, as named tensors and numbers, and the way back."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tercet.training.loop.processes import like, whole

Numbers = dict[str, dict[str, float]]


def trained_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters that are trained, and the buffers that belong to the state, by name."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield name, parameter
    stored = module.state_dict().keys()
    yield from ((name, buffer) for name, buffer in module.named_buffers() if name in stored)


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return everything that training changes, on the CPU: of a module that is there, the tensors themselves."""
    return {name: whole(tensor) for name, tensor in trained_tensors(module)}


@torch.no_grad()
def set_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put back what `weights_of` returned."""
    for name, tensor in trained_tensors(module):
        tensor.copy_(like(weights[name], tensor))


def optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], Numbers]:
    """Return an optimizer's tensors, as `PARAMETER/KEY`, and its other numbers."""
    tensors: dict[str, Tensor] = {}
    numbers: Numbers = {}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{name}/{key}"] = whole(value)
            else:
                numbers.setdefault(name, {})[key] = value
    return tensors, numbers


def set_optimizer_state(
    module: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: Numbers
) -> None:
    """Put back what `optimizer_state` returned."""
    states: dict[str, dict[str, Any]] = {name: dict(values) for name, values in numbers.items()}
    parameters = dict(module.named_parameters())
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        states.setdefault(name, {})[key] = like(value, parameters[name])
    for name, state in states.items():
        optimizer.state[parameters[name]] = state
