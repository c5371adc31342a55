"""Vectors as arrays: their type and their length, without torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

LEAST_LENGTH = 1e-6
"""Shorter vectors are divided by this, so that zeros stay zeros; it is a number in fp16, too."""


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Scale vectors to length 1; of tensors, see `unit_length` in tower.py."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), LEAST_LENGTH))
