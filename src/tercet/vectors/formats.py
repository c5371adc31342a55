"""Files of vectors: how each format writes texts, what is kept with them, and their vectors."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from tercet.data.rows.kept import Kept
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.errors import SettingError
from tercet.storage.choices import Dtype
from tercet.vectors.numbers import arrow_columns, json_fields, npy_rows, npy_type

ABOUT = b"tercet"
"""The key of what a Parquet file says about its vectors."""


@dataclass(frozen=True)
class Chunk:
    """Some of the texts, with their vectors and what is kept of their rows."""

    texts: list[str]
    vectors: Vectors
    kept: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """What a file of vectors holds."""

    num_texts: int
    dims: int
    dtype: Dtype = "float32"
    kept: Kept = field(default_factory=Kept)
    about: dict[str, Any] = field(default_factory=dict)
    """What the vectors were made with."""


Write = Callable[[IO[bytes], Iterable[Chunk], Layout], None]
"""Writes chunks in a file's format."""


def writer_for(out: Path, *, keep: bool = False) -> Write:
    """Return the function that writes vectors in the format of a file's ending.

    Args:
        out: The file.
        keep: Whether columns are to stand beside them.

    Raises:
        SettingError: It is no format for vectors, or none for columns.
    """
    writer = _WRITERS.get(out.suffix.lower())
    if writer is None:
        endings = ", ".join(_WRITERS)
        raise SettingError(f"{out}: no format for vectors. End the name in one of: {endings}; or in / for a folder.")
    if keep and writer is _write_npy:
        raise SettingError(f"{out}: has vectors only, and no room for columns. Take .parquet or .jsonl.")
    return writer


def is_file_of_vectors(out: Path) -> bool:
    """Return whether a target's name is that of a file of vectors, whatever is there."""
    return out.suffix.lower() in _WRITERS


def about_vectors(encoder: Encoder, *, precision: str, dtype: Dtype, dims: int) -> dict[str, Any]:
    """Return what a file says about its vectors: whoever searches it has to use the same encoder."""
    return {"fingerprint": encoder.fingerprint(), "precision": precision, "dtype": dtype, "dims": dims}


def schema_metadata(about: dict[str, Any]) -> dict[bytes, bytes]:
    """Return what stands in the schema of a Parquet file."""
    return {ABOUT: json.dumps(about, sort_keys=True).encode()}


def arrow_table(chunk: Chunk, layout: Layout) -> Any:
    """Return a chunk as a table of Arrow: what is kept, the texts, and the vectors."""
    import pyarrow as pa

    kept = {name: layout.kept.array(name, values) for name, values in chunk.kept.items()}
    texts = {"text": pa.array(chunk.texts, pa.string())}
    table = pa.table({**kept, **texts, **arrow_columns(chunk.vectors, layout.dtype)})
    return table.replace_schema_metadata(schema_metadata(layout.about))


def write_jsonl(stream: IO[bytes], chunks: Iterable[Chunk], layout: Layout) -> None:
    """Write a line of JSON for each text."""
    for chunk in chunks:
        for place, (text, fields) in enumerate(zip(chunk.texts, json_fields(chunk.vectors, layout.dtype), strict=True)):
            kept = {name: values[place] for name, values in chunk.kept.items()}
            line = json.dumps({**kept, "text": text, **fields}, ensure_ascii=False, default=str)
            stream.write(line.encode() + b"\n")


def _write_npy(stream: IO[bytes], chunks: Iterable[Chunk], layout: Layout) -> None:
    kind = npy_type(layout.dims, layout.dtype)
    width = () if kind.names else (layout.dims if layout.dtype != "binary" else -(-layout.dims // 8),)
    descr = np.lib.format.dtype_to_descr(kind)
    header = {"descr": descr, "fortran_order": False, "shape": (layout.num_texts, *width)}
    np.lib.format.write_array_header_1_0(stream, header)
    for chunk in chunks:
        stream.write(npy_rows(chunk.vectors, layout.dtype).tobytes())


def _write_parquet(stream: IO[bytes], chunks: Iterable[Chunk], layout: Layout) -> None:
    import pyarrow.parquet

    nothing = {name: list[Any]() for name in layout.kept.names}
    schema = arrow_table(Chunk([], np.empty((0, layout.dims), np.float32), nothing), layout).schema
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        for chunk in chunks:
            writer.write_table(arrow_table(chunk, layout))


_WRITERS: dict[str, Write] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": write_jsonl,
}
