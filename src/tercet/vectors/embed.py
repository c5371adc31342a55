"""The verb `embed`: a file of texts becomes a file of vectors, however long it takes and however often it is killed."""

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Unpack

import numpy as np
from numpy.typing import NDArray

from tercet.data.rows.texts import TextFile
from tercet.encoder.model.encoder import Encoder
from tercet.encoder.model.settings import Embedded, EmbedOptions, EmbedStats, Vectors
from tercet.errors import InputError, SettingError, TextError
from tercet.storage.files import atomic_write, check_writable, move_file
from tercet.storage.hashing import text_digest
from tercet.storage.progress import Advance, progress_bar
from tercet.storage.shards import Shards, in_shards

SHARD_TEXTS = 8192

TextsAndVectors = tuple[list[str], Vectors]

_NUM_COUNTS = 2
"""Behind the numbers of a vector, a row of a shard has how many tokens were read, and whether the text was cut."""

_REMEMBERED = 2_000_000
"""How many different texts are remembered so that each is embedded once; a quarter of a gigabyte."""


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
            try:
                vectors, stats = encoder.embed_with_stats(all_texts, **options)
            except TextError as error:
                raise InputError(f"{texts.path}: row {error.position + 1} {error.problem}") from error
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


def writer_for(out: Path) -> Callable[[IO[bytes], Iterable[TextsAndVectors], tuple[int, int]], None]:
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
    return Shards(out.with_name(f"{out.name}.parts"), plan=plan, ending=".npy")


def _fill_shards(
    shards: Shards, texts: TextFile, encoder: Encoder, shard_texts: int, advance: Advance, options: EmbedOptions
) -> EmbedStats:
    """Embed what is not done yet, every text once: where it stands again, it gets the vector of the first place."""
    waiting: deque[_Shard] = deque()
    stats = EmbedStats()

    def new_texts() -> Iterator[list[str]]:
        for shard in _plan_shards(texts, shard_texts):
            if shards.is_done(shard.number):
                advance(len(shard.firsts), earlier=True)
            else:
                waiting.append(shard)
                yield shard.new_texts

    try:
        for embedded in encoder.embed_each(new_texts(), **options):
            shard = waiting.popleft()
            with atomic_write(shards.path(shard.number)) as stream:
                rows = _with_earlier(shard, embedded, shards, shard_texts)
                _write_npy(stream, [([], rows)], rows.shape)
            advance(len(shard.firsts) - len(shard.new_texts))
    except TextError as error:
        row = waiting[0].new_rows[error.position]
        raise InputError(f"{texts.path}: row {row + 1} {error.problem}") from error
    for number in range(math.ceil(texts.num_texts / shard_texts)):
        counts = np.load(shards.path(number), mmap_mode="r")[:, -_NUM_COUNTS:].sum(0, dtype=np.float64)
        stats += EmbedStats(min(shard_texts, texts.num_texts - number * shard_texts), *map(int, counts))
    return stats


@dataclass(frozen=True)
class _Shard:
    number: int
    firsts: NDArray[np.int64]
    """For each text of the shard, the row of the file where it first stands."""

    new_rows: NDArray[np.int64]
    """The rows whose texts stand nowhere before."""

    new_texts: list[str]


def _plan_shards(texts: TextFile, shard_texts: int) -> Iterator[_Shard]:
    """Yield which texts of each shard are new. The first two million different texts of a file are remembered."""
    seen: dict[bytes, int] = {}
    for number, chunk in enumerate(in_shards(iter(texts), shard_texts)):
        start = number * shard_texts
        new: dict[bytes, int] = {}
        firsts = np.empty(len(chunk), np.int64)
        for row, text in enumerate(chunk, start):
            key = text_digest(text)
            first = seen.get(key)
            firsts[row - start] = new.setdefault(key, row) if first is None else first
        if len(seen) < _REMEMBERED:
            seen |= new
        rows = np.array(list(new.values()), np.int64)
        yield _Shard(number, firsts, rows, [chunk[row - start] for row in rows])


def _with_earlier(shard: _Shard, new: Embedded, shards: Shards, shard_texts: int) -> Vectors:
    """Return the rows of a shard: its texts' vectors and counts, those of earlier texts from their shards."""
    start = shard.number * shard_texts
    computed = np.column_stack([new.vectors, new.num_tokens, new.truncated]).astype(np.float32, copy=False)
    rows = np.empty((len(shard.firsts), computed.shape[1]), np.float32)
    here = shard.firsts >= start
    rows[here] = computed[np.searchsorted(shard.new_rows, shard.firsts[here])]
    numbers, places = np.divmod(shard.firsts, shard_texts)
    for number in np.unique(numbers[~here]):
        theirs = numbers == number
        rows[theirs] = np.load(shards.path(int(number)), mmap_mode="r")[places[theirs]]
    return rows


def _read_shards(shards: Shards, texts: TextFile, shard_texts: int) -> Iterator[TextsAndVectors]:
    for number, chunk in enumerate(in_shards(iter(texts), shard_texts)):
        yield chunk, np.load(shards.path(number), mmap_mode="r")[:, :-_NUM_COUNTS]


def _write_npy(stream: IO[bytes], embedded: Iterable[TextsAndVectors], shape: tuple[int, int]) -> None:
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    for _, vectors in embedded:
        stream.write(vectors.astype("<f4", copy=False).tobytes())


def _write_parquet(stream: IO[bytes], embedded: Iterable[TextsAndVectors], shape: tuple[int, int]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema([("text", pa.string()), ("embedding", pa.list_(pa.float32(), shape[1]))])
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        for texts, vectors in embedded:
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), shape[1])
            writer.write_table(pa.table([pa.array(texts, pa.string()), column], schema=schema))


def _write_jsonl(stream: IO[bytes], embedded: Iterable[TextsAndVectors], _shape: tuple[int, int]) -> None:
    for texts, vectors in embedded:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            line = json.dumps({"text": text, "embedding": vector}, ensure_ascii=False)
            stream.write(line.encode() + b"\n")


_WRITERS: dict[str, Callable[[IO[bytes], Iterable[TextsAndVectors], tuple[int, int]], None]] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
