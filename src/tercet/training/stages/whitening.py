"""Whitening: which matrix makes vectors differ about as much in all directions."""

import numpy as np
from numpy.typing import NDArray

from tercet.encoder.model.settings import Vectors

Matrix = NDArray[np.float64]

_LEAST = 1e-4
"""The smallest variance of a direction, as a part of the largest one."""


def whitening(vectors: Vectors, power: float) -> tuple[Matrix, Matrix]:
    """Return the matrix that divides each direction of vectors by its variance to a power, and the variances.

    Args:
        vectors: Vectors [n, width].
        power: 0 for nothing, 0.5 for equal variance.

    Returns:
        A symmetric matrix [width, width], and the variances [width], the smallest first.
    """
    variance, directions = np.linalg.eigh(np.cov(vectors.astype(np.float64), rowvar=False))
    scale = np.maximum(variance, variance[-1] * _LEAST) ** -power
    return (directions * scale) @ directions.T, variance
