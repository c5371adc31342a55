"""Vectors that are kept in a file: read only where they are as they were written and of the shape that is wanted."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.storage.manifest import is_whole


def read_kept(
    file: Path, *, dtype: "np.dtype[Any]", shape: tuple[int | None, ...], checked: bool = False
) -> NDArray[Any]:
    """Return the array in a `.npy` file, mapped into memory.

    Args:
        file: The file.
        dtype: What its numbers have to be.
        shape: What its shape has to be; None for any length.
        checked: Whether it has been read before, so that its bytes and numbers need not be looked at again.

    Raises:
        ValueError: It is something else, or not as it was written, or has numbers that are not finite.
        OSError: The system does not give the file.
    """
    try:
        if not checked and not is_whole(file):
            raise ValueError("it is not as it was written")
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # a header that is no Python literal fails in many ways
        raise ValueError(f"it cannot be read: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise ValueError(f"it holds {getattr(array, 'dtype', 'something else')}, not {dtype}")
    if [has if wanted is None else wanted for has, wanted in zip(array.shape, shape, strict=False)] != [*array.shape]:
        raise ValueError(f"it has the shape {array.shape}, not {shape}")
    if not checked and not bool(np.isfinite(array["vector"] if dtype.names else array).all()):
        raise ValueError("it has numbers that are not finite")
    return array
