"""Vectors that `embed` wrote into Parquet: searched as they are, some at a time, whatever their numbers are."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.data.reading.parquet import ParquetFile
from tercet.encoder.model.arrays import Vectors, unit
from tercet.errors import InputError
from tercet.vectors.formats import ABOUT
from tercet.vectors.numbers import EMBEDDING, SCALE, unpacked

_CANDIDATES, _LEAST_CANDIDATES = 20, 200
"""Of one-bit vectors, how many texts are compared again by full vectors: so many for each one wanted, and at least."""


@dataclass(frozen=True)
class StoredVectors:
    """The Parquet files of one call of `embed`, as one table."""

    path: Path
    files: tuple[Path, ...]
    about: dict[str, Any]
    """What the vectors were made with."""

    @classmethod
    def open(cls, path: Path) -> "StoredVectors | None":
        """Return the vectors in a file or a folder; None where it is something else.

        Raises:
            InputError: A file cannot be read, or those of a folder are of several models or settings.
        """
        if path.is_dir():
            files = tuple(sorted(file for file in path.glob("*.parquet") if not file.name.startswith(".")))
        else:
            files = (path,) if path.suffix.lower() == ".parquet" and path.is_file() else ()
        found = [ParquetFile(file).metadata.get(ABOUT) for file in files]
        if not found or found[0] is None:
            return None
        for file, about in zip(files, found, strict=True):
            if about != found[0]:
                raise InputError(f"{file}: has vectors of another model or other settings than {files[0].name}.")
        return cls(path, files, json.loads(found[0]))

    @property
    def is_binary(self) -> bool:
        """Whether a number is one bit, so that what is found has to be compared again."""
        return bool(self.about["dtype"] == "binary")

    def nearest(self, query: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Return the cosines and rows, from 0, of the k vectors that are nearest to one, best first.

        Of one-bit vectors these are candidates, more than k: their cosine is that of the signs.
        """
        wanted = max(_CANDIDATES * k, _LEAST_CANDIDATES) if self.is_binary else k
        best_scores, best_rows = np.empty(0, np.float32), np.empty(0, np.int64)
        first = 0
        for numbers, scale in self._blocks():
            scores = np.concatenate([best_scores, _cosines(numbers, scale, query)])
            rows = np.concatenate([best_rows, np.arange(first, first + len(numbers))])
            first += len(numbers)
            chosen = np.argpartition(-scores, wanted - 1)[:wanted] if len(scores) > wanted else np.arange(len(scores))
            best_scores, best_rows = scores[chosen], rows[chosen]
        order = np.lexsort((best_rows, -best_scores))
        return best_scores[order], best_rows[order]

    def records(self, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return what stands beside the vectors of some rows: the text, and what was kept with it."""
        found: dict[int, dict[str, Any]] = {}
        first = 0
        for path in self.files:
            file = ParquetFile(path)
            file.use([name for name in file.names if name not in (EMBEDDING, SCALE)])
            inside = rows[(rows >= first) & (rows < first + file.num_rows)]
            found |= {int(row): file.record_at(int(row) - first) for row in sorted(inside)}
            first += file.num_rows
        return [found[int(row)] for row in rows]

    def _blocks(self) -> Iterator[tuple[NDArray[Any], NDArray[np.float32] | None]]:
        """Yield the numbers of some vectors, and their scale."""
        for path in self.files:
            for batch in ParquetFile(path).batches([EMBEDDING, SCALE]):
                column = batch.column(EMBEDDING)
                numbers = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
                has_scale = SCALE in batch.schema.names
                yield numbers, batch.column(SCALE).to_numpy(zero_copy_only=False) if has_scale else None


def _cosines(numbers: NDArray[Any], scale: NDArray[np.float32] | None, query: Vectors) -> Vectors:
    """Return the cosines of vectors with a query; a scale makes no difference."""
    if numbers.dtype == np.uint8:
        different = np.bitwise_count(numbers ^ np.packbits(query > 0)).sum(1, dtype=np.int64)
        cosines: Vectors = (1 - 2 * different / len(query)).astype(np.float32)
        return cosines
    return np.asarray(unit(unpacked(numbers, None, dims=len(query))) @ unit(query), np.float32)
