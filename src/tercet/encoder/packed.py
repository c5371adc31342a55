"""Vectors with gradients, to be replaced by the packed forward."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tercet.encoder.batches import pad
from tercet.encoder.tower import Tower


def embed_rows(tower: Tower, rows: Sequence[Sequence[int]], *, pad_id: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return the raw vectors [n, width] of token id rows, in their order, in fp32."""
    device = next(tower.parameters()).device
    input_ids, mask = pad([list(row) for row in rows], pad_id=pad_id)
    with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
        return tower.raw(input_ids.to(device), mask.to(device))
