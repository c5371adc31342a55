"""Vectors kept in a file for the next time, under a name that says all that decides them."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tercet.encoder.model.arrays import Vectors
from tercet.errors import OutputError
from tercet.storage.files import atomic_write, make_folder

logger = logging.getLogger("tercet")


def cached_vectors(file: Path | None, make: Callable[[], Vectors]) -> Vectors:
    """Return the vectors in a file; where it is not there or is broken, make them and keep them.

    Vectors that cannot be kept are no error: they are made again the next time, and a warning says so.

    Args:
        file: Where they are kept, under a name that says all that decides them; None to keep nothing.
        make: Makes them.
    """
    if file is not None and file.exists():
        try:
            kept: Vectors = np.load(file, mmap_mode="r")
            return kept
        except (OSError, ValueError, EOFError) as error:
            logger.warning("%s cannot be read and is made again: %s", file, error)
    vectors = make()
    if file is not None:
        try:
            make_folder(file.parent)
            with atomic_write(file) as stream:
                np.save(stream, vectors)
        except OutputError as error:
            logger.warning("vectors are not kept for the next time: %s", error)
    return vectors
