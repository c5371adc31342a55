"""Texts that were seen before: 16 bytes each, however long they are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tercet.storage.hashing import text_digest

_Keys = NDArray[np.bytes_]


class Seen:
    """A set of texts, as hashes of 128 bits in a few sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._arrays: list[_Keys] = []

    def add(self, texts: Sequence[str]) -> list[bool]:
        """Add texts, and return for each whether it is new: not among those before it, here or in earlier calls."""
        if not texts:
            return []
        keys = np.array([text_digest(text) for text in texts], "S16")
        is_new = np.zeros(len(keys), bool)
        is_new[np.unique(keys, return_index=True)[1]] = True
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, keys), len(array) - 1)
            is_new &= array[places] != keys
        new = np.sort(keys[is_new])
        while self._arrays and len(self._arrays[-1]) < 2 * len(new):
            new = np.sort(np.concatenate([self._arrays.pop(), new]), kind="stable")  # two sorted runs
        if len(new):
            self._arrays.append(new)
        return [bool(flag) for flag in is_new]
