"""Matryoshka losses: the first numbers of a vector are to be a good vector by themselves (Kusupati et al., 2022)."""

from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from tercet.encoder.encoder import Encoder
from tercet.errors import SettingError
from tercet.storage.settings import Settings


class MatryoshkaSettings(Settings):
    """Which shorter vectors are trained, too."""

    dims: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), exclude_if=lambda dims: not dims)
    """How many of the first numbers are to be good vectors by themselves: `[256, 128, 64]`. The loss is the mean of the
    losses over these and over all numbers. The encoder's folder says which they are."""


def mean_over_widths(dims: Sequence[int], loss: Callable[[int | None], Tensor]) -> Tensor:
    """Return the mean of a loss over all numbers of the vectors, and over the first ones.

    Args:
        dims: How many of the first.
        loss: The loss where vectors are cut to so many numbers; None for all.
    """
    return torch.stack([loss(width) for width in (None, *dims)]).mean()


def check_dims(dims: Sequence[int], encoder: Encoder, *, stage: str) -> None:
    """Raise SettingError if an encoder's vectors cannot be cut to so many numbers."""
    if not dims:
        return
    if max(dims) >= encoder.dim or len(set(dims)) < len(dims):
        raise SettingError(f"stages.{stage}.dims {[*dims]}: vectors have {encoder.dim} numbers. Give different, fewer.")
    if encoder.head.mlp is not None and encoder.head.mlp_when == "training":
        raise SettingError(
            f"stages.{stage}.dims: an MLP for training only changes the numbers. Set encoder.mlp: always."
        )
