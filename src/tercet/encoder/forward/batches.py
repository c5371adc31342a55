"""Batches: texts of similar length together, each batch under a budget of tokens."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def batches_by_length(lengths: Sequence[int], *, max_batch_tokens: int, padded: bool = True) -> Iterator[list[int]]:
    """Yield the positions of each batch, longest texts first.

    A batch has no more than `max_batch_tokens`, unless one text alone does. Padded, it costs its number of texts times
    the longest; packed, only the tokens that there are.
    """
    batch: list[int] = []
    num_tokens = 0
    for position in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        cost = lengths[batch[0]] if batch and padded else lengths[position]
        if batch and num_tokens + cost > max_batch_tokens:
            yield batch
            batch, num_tokens, cost = [], 0, lengths[position]
        batch.append(position)
        num_tokens += cost
    if batch:
        yield batch


LEAST_TOKENS = 128
"""How many tokens are worth another thread, and"""

USUAL_TOKENS = 512
"""how many it may have at once, whatever is left of the budget for it."""


def batches_for_threads(lengths: Sequence[int], *, max_batch_tokens: int, threads: int) -> Iterator[list[int]]:
    """Yield the positions of each packed batch, longest texts first, so that threads have about as much to do each.

    Args:
        lengths: How many tokens each text has.
        max_batch_tokens: The most that all threads compute at once, or 512 each where that is more.
        threads: How many batches are computed side by side.
    """
    total = sum(lengths)
    most = max(min(max_batch_tokens, USUAL_TOKENS), max_batch_tokens // threads)
    rounds = math.ceil(total / (most * threads))
    num = max(math.ceil(total / most), min(rounds * threads, total // LEAST_TOKENS), 1)
    budget = min(most, math.ceil(total / num) + max(lengths, default=0))
    return batches_by_length(lengths, max_batch_tokens=budget, padded=False)


def pad(ids: Sequence[Sequence[int]], *, pad_id: int) -> tuple[Tensor, Tensor]:
    """Return the ids as one padded tensor, and its mask: 1 for real tokens, 0 for padding."""
    longest = max(map(len, ids))
    padded = torch.tensor([[*row] + [pad_id] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    return padded, mask
