"""The stage `mine`: texts beside their near and less near neighbours, so that later stages see small differences."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import AfterValidator, Field, model_validator
from torch import Tensor

from tercet.data.rows.settings import RowSettings
from tercet.encoder.model.tower import unit_length
from tercet.errors import InputError
from tercet.storage.files import atomic_write
from tercet.storage.progress import progress_bar
from tercet.training.stages.model import StageModel
from tercet.training.stages.stage import Context, Kind, StageSettings
from tercet.training.stages.texts import TextSample
from tercet.vectors.nearest import nearest
from tercet.vectors.remembered import RememberedVectors


def _rising(ranks: list[int]) -> list[int]:
    if not ranks or any(low >= high for low, high in pairwise([0, *ranks])):
        raise ValueError("ranks rise from 1 on, such as [3, 15, 100]")
    return ranks


Ranks = Annotated[list[int], AfterValidator(_rising)]
"""Where each range of neighbours ends, from the nearest on."""


class MineStage(StageSettings):
    """The settings of a stage that looks for neighbours."""

    model: StageModel
    """The encoder that says how near texts are."""

    rows: RowSettings
    """Whose texts are neighbours; every kind of rows will do."""

    ranks: Ranks = Field(default=[3, 15, 100])
    """The positive is one of the nearest 3 texts, the first negative one of the next, up to rank 15, and so on."""

    max_texts: int = Field(default=200_000, ge=2)
    """How many texts there are, drawn from all rows."""

    max_rows: int = Field(default=50_000, ge=1)
    """How many of them get neighbours."""

    precision: Literal["exact", "fast", "int8", "auto"] = "auto"
    """How they are embedded."""

    cache: Path | None = None
    """The folder where vectors are kept for other stages and runs, too; in the run's own where null."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*self.model.names(), *(source.path for source in self.rows.sources)]

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.max_texts <= self.ranks[-1]:
            raise ValueError(f"max_texts is larger than the last of ranks, {self.ranks[-1]}")
        return self


class _Mine:
    def __init__(self, settings: MineStage, context: Context) -> None:
        self._settings, self._context = settings, context
        self._sample = TextSample(settings.rows, context)
        self.inputs = {"model": settings.model.describe(context), "rows": self._sample.inputs}

    def run(self) -> dict[str, Any]:
        settings, context = self._settings, self._context
        if not context.processes.is_main:
            return {}
        texts = self._sample.draw(settings.max_texts)
        check_enough(len(texts), settings.ranks, context)
        cache = settings.cache or context.teachers
        store = RememberedVectors(cache, settings.model.load_in(context), precision=settings.precision)
        keys = store.add(lambda: texts, label="embedding texts to mine", progress=context.progress)
        found = neighbours_of(torch.from_numpy(store(keys)), settings.ranks, seed=context.seed)
        chosen = range(min(settings.max_rows, len(texts)))  # the sample is in random order already
        with (
            atomic_write(context.folder / KIND.output, "w") as stream,
            progress_bar("looking for negatives", total=len(chosen), unit="texts", enabled=context.progress) as advance,
        ):
            for i, neighbours in zip(chosen, found, strict=False):
                positive, *negatives = (texts[j] for j in neighbours)
                row = {"anchor": texts[i], "positive": positive, "negatives": negatives}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                advance(1)
        return {"num_rows": len(chosen)}


def check_enough(num: int, ranks: Ranks, context: Context) -> None:
    """Raise InputError if so many texts have no neighbour of the last rank."""
    if num <= ranks[-1]:
        raise InputError(
            f"stages.{context.name}.rows: {num:,} texts have no neighbour of rank {ranks[-1]}. "
            "Give more texts, or lower ranks."
        )


def neighbours_of(vectors: Tensor, ranks: list[int], *, seed: int) -> Iterator[list[int]]:
    """Yield for each vector the places of some of its neighbours: of each range of ranks, one drawn at random.

    Args:
        vectors: [n, width]. Their mean is taken away, and cosines are compared.
        ranks: Where each range ends.
        seed: What neighbours are drawn with.
    """
    vectors = unit_length(vectors - vectors.mean(0))
    num = len(vectors)
    lows, highs = zip(*pairwise([0, *ranks]), strict=True)
    drawn = np.random.default_rng(seed).integers(lows, highs, (num, len(ranks)))
    array = vectors.numpy()
    for start, _, places in nearest(array, array, ranks[-1], itself=False):
        yield from np.take_along_axis(places, drawn[start : start + len(places)], axis=1).tolist()


KIND = Kind(MineStage, _Mine, output="rows.jsonl", rows="texts")
