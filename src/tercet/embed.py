"""The verb `embed`: a file of texts becomes a file of vectors, however long it takes and however often it is killed."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import IO, Unpack

import numpy as np

from tercet.encoder import EmbedOptions, EmbedStats, Encoder, Vectors
from tercet.errors import InputError, SettingError, TextError
from tercet.files import atomic_write, check_writable, move_file
from tercet.progress import Advance, progress_bar
from tercet.rows.texts import TextFile
from tercet.shards import Shards, in_shards

SHARD_TEXTS = 8192

Embedded = tuple[list[str], Vectors]
"""Some texts and their vectors."""


def embed_file(
    texts: TextFile,
    encoder: Encoder,
    out: Path,
    *,
    shard_texts: int = SHARD_TEXTS,
    **options: Unpack[EmbedOptions],
) -> EmbedStats:
    """Embed a file of texts into a file of vectors.

    More than one shard of texts is embedded shard by shard, in a folder beside `out` that is removed at the end. Killed
    and called again with the same texts, encoder and options, it goes on behind the last finished shard and writes the
    same bytes.

    Args:
        texts: What to embed.
        encoder: What to embed with.
        out: Where to: .npy (vectors), .parquet or .jsonl (texts and vectors).
        shard_texts: How many texts a shard has.
        **options: See `EmbedOptions`.

    Raises:
        OutputError: The target cannot be written; no half of it is left.
    """
    write = writer_for(out)
    if shard_texts < 1:
        raise SettingError(f"shard_texts {shard_texts}: is less than one. Give a positive number.")
    check_writable(out)
    if out.exists() and out.samefile(texts.path):
        raise SettingError(f"{out}: is the input, which would be lost. Name another target.")
    options["precision"] = encoder.resolve_precision(options.get("precision", "exact"))
    shape = (texts.num_texts, options.get("dims") or encoder.dim)
    show = bool(options.get("progress"))
    with progress_bar("embedding", total=texts.num_texts, unit="texts", enabled=show) as advance:
        options["progress"] = advance
        if texts.num_texts <= shard_texts:
            all_texts = list(texts)
            with _naming_rows(texts, 0):
                vectors, stats = encoder.embed_with_stats(all_texts, **options)
            with atomic_write(out) as stream:
                write(stream, [(all_texts, vectors)], shape)
            return stats
        shards = _open_shards(texts, encoder, out, shard_texts, options)
        try:
            stats = _fill_shards(shards, texts, encoder, shard_texts, advance, options)
        except Exception as error:
            # after a text that cannot be embedded, texts or options have to change: these shards are of no use then
            if isinstance(error.__cause__, TextError) or not shards.any_done():
                shards.remove()
            raise
        assembled = shards.folder / out.name
        with atomic_write(assembled) as stream:
            write(stream, _read_shards(shards, texts, shard_texts), shape)
        move_file(assembled, out)
        shards.remove()
    return stats


def writer_for(out: Path) -> Callable[[IO[bytes], Iterable[Embedded], tuple[int, int]], None]:
    """Return the function that writes vectors in the format of a file's ending.

    Raises:
        SettingError: It is no format for vectors.
    """
    writer = _WRITERS.get(out.suffix.lower())
    if writer is None:
        raise SettingError(f"{out}: no format for vectors. End the name in one of: {', '.join(_WRITERS)}.")
    return writer


def _open_shards(texts: TextFile, encoder: Encoder, out: Path, shard_texts: int, options: EmbedOptions) -> Shards:
    plan: dict[str, object] = {
        "texts": texts.sha256,
        "encoder": encoder.fingerprint(),
        "options": {key: value for key, value in options.items() if key != "progress"},
        "device": encoder.device.type,
        "shard_texts": shard_texts,
    }
    return Shards(out.with_name(f"{out.name}.parts"), plan=plan, ending=".npz")


def _fill_shards(
    shards: Shards, texts: TextFile, encoder: Encoder, shard_texts: int, advance: Advance, options: EmbedOptions
) -> EmbedStats:
    total = EmbedStats()
    for number, chunk in enumerate(in_shards(iter(texts), shard_texts)):
        if shards.is_done(number):
            advance(len(chunk), earlier=True)
        else:
            with _naming_rows(texts, number * shard_texts):
                vectors, stats = encoder.embed_with_stats(chunk, **options)
            with atomic_write(shards.path(number)) as stream:
                np.savez(stream, vectors=vectors, stats=np.array(astuple(stats)))
        with np.load(shards.path(number)) as shard:
            total += EmbedStats(*map(int, shard["stats"]))
    return total


@contextlib.contextmanager
def _naming_rows(texts: TextFile, first: int) -> Iterator[None]:
    """Say which row of the file a text is that cannot be embedded."""
    try:
        yield
    except TextError as error:
        raise InputError(f"{texts.path}: row {first + error.position + 1} {error.problem}") from error


def _read_shards(shards: Shards, texts: TextFile, shard_texts: int) -> Iterator[Embedded]:
    for number, chunk in enumerate(in_shards(iter(texts), shard_texts)):
        with np.load(shards.path(number)) as shard:
            yield chunk, shard["vectors"]


def _write_npy(stream: IO[bytes], embedded: Iterable[Embedded], shape: tuple[int, int]) -> None:
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    for _, vectors in embedded:
        stream.write(vectors.astype("<f4", copy=False).tobytes())


def _write_parquet(stream: IO[bytes], embedded: Iterable[Embedded], shape: tuple[int, int]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema([("text", pa.string()), ("embedding", pa.list_(pa.float32(), shape[1]))])
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        for texts, vectors in embedded:
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), shape[1])
            writer.write_table(pa.table([pa.array(texts, pa.string()), column], schema=schema))


def _write_jsonl(stream: IO[bytes], embedded: Iterable[Embedded], _shape: tuple[int, int]) -> None:
    for texts, vectors in embedded:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            line = json.dumps({"text": text, "embedding": vector}, ensure_ascii=False)
            stream.write(line.encode() + b"\n")


_WRITERS: dict[str, Callable[[IO[bytes], Iterable[Embedded], tuple[int, int]], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
