"""Batches: texts of similar length together, each batch under a budget of tokens."""

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


def pad(ids: Sequence[Sequence[int]], *, pad_id: int) -> tuple[Tensor, Tensor]:
    """Return the ids as one padded tensor, and its mask: 1 for real tokens, 0 for padding."""
    longest = max(map(len, ids))
    padded = torch.tensor([[*row] + [pad_id] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    return padded, mask
