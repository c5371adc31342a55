"""The numbers of vectors in a file: 32 or 16 bits, 8 bits with a scale for each vector, or one bit."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.encoder.model.arrays import Vectors
from tercet.errors import SettingError
from tercet.storage.choices import Dtype

EMBEDDING, SCALE = "embedding", "scale"
"""What the columns of a file are called."""

_MOST = 127
"""The largest number of 8 bits; the smallest is the same with a minus, so that nothing is shifted."""

_LARGEST = float(np.finfo(np.float16).max)


def packed(vectors: Vectors, dtype: Dtype) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Return vectors [n, dims] in another format, and the scale of each one [n] where the format has one.

    A vector is packed by itself, whatever others are beside it. With `int8` it is about its numbers times its scale.
    With `binary`, eight signs are one byte, the first in the highest bit: [n, dims / 8], rounded up.

    Raises:
        SettingError: A number is too large for `float16`.
    """
    if dtype == "int8":
        scale = (np.abs(vectors).max(1) / _MOST).astype(np.float32)
        safe = np.where(scale > 0, scale, 1)[:, None]
        return np.clip(np.rint(vectors / safe), -_MOST, _MOST).astype(np.int8), scale
    if dtype == "binary":
        return np.packbits(vectors > 0, axis=1), None
    if dtype == "float16" and len(vectors) and float(np.abs(vectors).max()) > _LARGEST:
        raise SettingError("dtype 'float16': a vector has numbers that are too large for it. Take float32.")
    return vectors.astype(np.dtype(dtype).newbyteorder("<"), copy=False), None


def unpacked(numbers: NDArray[Any], scale: NDArray[np.float32] | None, *, dims: int) -> Vectors:
    """Return packed vectors as float32; of `binary` ones, 1 and -1 for the signs."""
    if numbers.dtype == np.uint8:
        return np.unpackbits(numbers, axis=1, count=dims).astype(np.float32) * 2 - 1
    vectors: Vectors = numbers.astype(np.float32)
    return vectors if scale is None else vectors * scale[:, None]


def npy_type(dims: int, dtype: Dtype) -> "np.dtype[Any]":
    """Return the type of one row in a `.npy` file: with `int8`, a record of the fields `embedding` and `scale`."""
    if dtype == "int8":
        return np.dtype([(EMBEDDING, "i1", (dims,)), (SCALE, "<f4")])
    return np.dtype("u1") if dtype == "binary" else np.dtype(dtype).newbyteorder("<")


def npy_rows(vectors: Vectors, dtype: Dtype) -> NDArray[Any]:
    """Return vectors as the rows of a `.npy` file."""
    numbers, scale = packed(vectors, dtype)
    if scale is None:
        return numbers
    rows = np.empty(len(vectors), npy_type(vectors.shape[1], dtype))
    rows[EMBEDDING], rows[SCALE] = numbers, scale
    return rows


def arrow_columns(vectors: Vectors, dtype: Dtype) -> dict[str, Any]:
    """Return vectors as columns of Arrow: `embedding`, a list of a fixed size, and `scale` where there is one."""
    import pyarrow as pa

    numbers, scale = packed(vectors, dtype)
    columns = {EMBEDDING: pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), numbers.shape[1])}
    return columns if scale is None else columns | {SCALE: pa.array(scale)}


def json_fields(vectors: Vectors, dtype: Dtype) -> Iterator[dict[str, Any]]:
    """Yield what a line of JSON says of each vector."""
    numbers, scale = packed(vectors, dtype)
    for place, row in enumerate(numbers.tolist()):
        yield {EMBEDDING: row} if scale is None else {EMBEDDING: row, SCALE: float(scale[place])}
