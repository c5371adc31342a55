"""Whitening: directions in which vectors differ much count for less, those in which they hardly differ for more."""

import numpy as np

from tercet.encoder.model.arrays import Vectors


def whitening(vectors: Vectors, power: float = 0.5, *, least: float = 1e-8) -> Vectors:
    """Return the symmetric matrix [width, width] that divides each direction of vectors by its variance to a power.

    Args:
        vectors: What the variances are taken of.
        power: 0 for nothing, 0.5 for equal variance in all directions.
        least: The smallest variance that counts, as a part of the largest one.
    """
    variance, directions = np.linalg.eigh(np.cov(vectors.astype(np.float64), rowvar=False))
    scale = np.maximum(variance, variance[-1] * least) ** -power
    return np.asarray((directions * scale) @ directions.T, np.float32)
