"""The geometry of an embedding space, as functions of vectors: alignment, uniformity, anisotropy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_BLOCK = 1024


def alignment(first: Array, second: Array, *, as_printed: bool = False) -> float:
    """Return the mean distance of positive pairs on the unit sphere; lower is better.

    Args:
        first: Vectors of length 1.
        second: Vectors of length 1, paired with the first.
        as_printed: Whether distances are taken as printed in the Sentence-T5 paper, without the square.
    """
    distances = np.linalg.norm(first - second, axis=-1)
    return float(np.mean(distances if as_printed else distances**2))


def uniformity(vectors: Array, *, as_printed: bool = False) -> float:
    """Return the log of the mean of exp(-2 d^2) over all pairs of different vectors; lower is better.

    Args:
        vectors: Vectors of length 1.
        as_printed: Whether the distance d is taken as printed in the Sentence-T5 paper, without the square.
    """
    total, num = 0.0, len(vectors)
    for start in range(0, num, _BLOCK):
        squares = np.maximum(2 - 2 * (vectors[start : start + _BLOCK] @ vectors.T), 0).astype(np.float64)
        total += float(np.exp(-2 * (np.sqrt(squares) if as_printed else squares)).sum())
    return float(np.log((total - num) / (num * (num - 1))))


def anisotropy(vectors: Array) -> float:
    """Return the mean cosine of two different vectors: 0 where directions are spread evenly, 1 where all are one."""
    num = len(vectors)
    return float((np.square(vectors.sum(0, dtype=np.float64)).sum() - num) / (num * (num - 1)))
