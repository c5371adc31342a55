"""What a student should be like: the vectors of one or several teachers, in the student's width."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BeforeValidator, Field, PositiveFloat
from torch import Tensor

from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.tower import unit_length
from tercet.training.stages.model import StageModel
from tercet.training.stages.stage import Context
from tercet.vectors.remembered import Keys, RememberedVectors
from tercet.vectors.whitening import whitening

_SAMPLE = 65_536
"""How many texts decide which directions of the teachers' vectors are kept."""

_BLOCK = 65_536

_LEAST_VARIANCE = 1e-4
"""The smallest variance of a direction that whitening sees, as a part of the largest one."""


class TeacherSettings(StageModel):
    """One teacher. A text alone stands for `{model: TEXT}`."""

    weight: PositiveFloat = 1.0
    """How much its cosines count among those of all teachers."""

    center: float = Field(default=1.0, ge=0, le=1)
    """How much of the mean over all texts is subtracted from its vectors."""

    whiten: float = Field(default=0, ge=0, le=0.5)
    """Every direction of its vectors is divided by its variance to this power: 0 for nothing, 0.5 for equal
    variance in all. Directions in which texts hardly differ count for more, those in which all differ for less."""


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


TeacherList = Annotated[list[TeacherSettings], BeforeValidator(_as_list), Field(min_length=1)]


class Targets:
    """The vectors that texts should have: those of all teachers side by side, and turned into the student's width.

    Each teacher's are centred and of length 1, so that the cosine of two targets is the weighted mean of the teachers'.
    Where there are more numbers than the student has, the directions in which the texts differ most are kept; where
    there are fewer, the rest is 0.

    Args:
        teachers: What they are.
        width: How many numbers a vector of the student has.
        context: The run.
        cache: Where teachers' vectors are kept.
        precision: How they are computed.
    """

    def __init__(
        self, teachers: Sequence[TeacherSettings], *, width: int, context: Context, cache: Path, precision: str
    ) -> None:
        self._settings, self._width, self._context = teachers, width, context
        self._stores = [RememberedVectors(cache, each.load_in(context), precision=precision) for each in teachers]
        self._means = [np.zeros(store.dim, np.float32) for store in self._stores]
        self._changes: list[Vectors | None] = [None] * len(self._stores)
        self._directions: Vectors | None = None

    def learn(self, texts: Callable[[], Iterable[str]]) -> None:
        """Embed all texts with all teachers, and learn means and directions from their vectors."""
        for store, settings in zip(self._stores, self._settings, strict=True):
            keys = self._context.remember(store, texts, label=f"embedding with {settings.model}")
        for i, (store, settings) in enumerate(zip(self._stores, self._settings, strict=True)):
            if settings.center:
                sums = (store(block).sum(0, dtype=np.float64) for block in _blocks(keys))
                self._means[i] = (settings.center * sum(sums) / len(keys)).astype(np.float32)
        chosen = np.random.default_rng(0).permutation(keys)[:_SAMPLE]
        for i, settings in enumerate(self._settings):
            if settings.whiten:
                self._changes[i] = whitening(self._of(i, chosen), settings.whiten, least=_LEAST_VARIANCE)
        if sum(store.dim for store in self._stores) > self._width:
            sample = self._joined(chosen).astype(np.float64)
            self._directions = np.linalg.eigh(sample.T @ sample)[1][:, : -self._width - 1 : -1].astype(np.float32)

    def __call__(self, keys: Tensor) -> Tensor:
        """Return the targets [n, width] of texts by their keys, of length 1."""
        joined = self._joined(keys.cpu().numpy())
        if self._directions is not None:
            joined = joined @ self._directions
        targets = unit_length(torch.from_numpy(joined))
        return torch.nn.functional.pad(targets, (0, self._width - targets.shape[1]))

    def _joined(self, keys: Keys) -> Vectors:
        parts = [self._of(i, keys) * settings.weight**0.5 for i, settings in enumerate(self._settings)]
        return np.concatenate(parts, axis=1)

    def _of(self, i: int, keys: Keys) -> Vectors:
        """Return the vectors of one teacher: centred, whitened, of length 1."""
        vectors = unit_length(torch.from_numpy(self._stores[i](keys) - self._means[i]))
        change = self._changes[i]
        return (vectors if change is None else unit_length(vectors @ torch.from_numpy(change))).numpy()


def _blocks(keys: Keys) -> list[Keys]:
    return np.array_split(keys, -(-len(keys) // _BLOCK))
