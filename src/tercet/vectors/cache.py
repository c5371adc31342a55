"""Vectors kept in a file for the next time, under a name that says all that decides them."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tercet.encoder.model.arrays import Vectors
from tercet.errors import OutputError
from tercet.storage.files import make_folder
from tercet.storage.manifest import recorded_write
from tercet.vectors.kept import read_kept

logger = logging.getLogger("tercet")


def cached_vectors(
    file: Path | None, make: Callable[[], Vectors], *, num: int | None = None, dim: int | None = None
) -> Vectors:
    """Return the vectors in a file; where it is not there or is damaged, make them and keep them.

    Vectors that cannot be kept are no error: they are made again the next time, and a warning says so.

    Args:
        file: Where they are kept, under a name that says all that decides them; None to keep nothing.
        make: Makes them.
        num: How many there are; any number where None.
        dim: How many numbers each has; any number where None.
    """
    if file is not None and file.exists():
        try:
            vectors: Vectors = read_kept(file, dtype=np.dtype(np.float32), shape=(num, dim))
            logger.info("vectors of an earlier time are taken from %s", file)
            return vectors
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be used and is made again: %s", file, error)
    vectors = make()
    if file is not None:
        try:
            make_folder(file.parent)
            with recorded_write(file) as stream:
                np.save(stream, vectors)
        except OutputError as error:
            logger.warning("vectors are not kept for the next time: %s", error)
    return vectors
