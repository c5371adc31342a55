"""Forgetting: weights between the start and the result, as far from the start as general sentences allow."""

from collections.abc import Callable

import torch
from torch import Tensor

from tercet.encoder.encoder import Encoder
from tercet.training.loop.state import set_weights, weights_of

MOST_LOST = 0.5
"""So many points may be lost on general sentences."""

_SHARES = (1.0, 0.75, 0.5, 0.25)
"""How much of the way from the start to the result is tried, in this order."""


def balance(start: Encoder, result: Encoder, general: Callable[[Encoder], float]) -> float:
    """Move an encoder back towards its start until it has lost no more on general sentences than it may.

    Args:
        start: The encoder before.
        result: The same after training; its weights are changed.
        general: The score of an encoder on general sentences, x 100.

    Returns:
        How much of the way was kept, 1 for all of it.
    """
    least = general(start) - MOST_LOST
    before, after = (
        {name: tensor.clone() for name, tensor in weights_of(encoder.tower).items()} for encoder in (start, result)
    )
    for share in _SHARES:
        if share < 1:
            between = {name: torch.lerp(before.get(name, _same(now)), now, share) for name, now in after.items()}
            set_weights(result.tower, between)
        if general(result) >= least:
            break
    return share


def _same(projection: Tensor) -> Tensor:
    """Return what a projection stands for that the start does not have."""
    return torch.eye(len(projection), dtype=projection.dtype, device=projection.device)
