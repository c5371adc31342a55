"""Batches: texts of similar length together, each batch under a budget of tokens."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def batches_by_length(lengths: Sequence[int], *, max_batch_tokens: int) -> Iterator[list[int]]:
    """Yield the positions of each batch, longest texts first.

    A batch of n texts costs n times its longest, and never more than `max_batch_tokens` unless one text alone does.
    """
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_batch_tokens:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def pad(ids: Sequence[list[int]], *, pad_id: int) -> tuple[Tensor, Tensor]:
    """Return the ids as one padded tensor, and its mask: 1 for real tokens, 0 for padding."""
    longest = max(map(len, ids))
    padded = torch.tensor([row + [pad_id] * (longest - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    return padded, mask
