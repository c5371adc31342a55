"""Embedding into one file: shard by shard in a folder beside it, which goes when the file is there."""

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from tercet.data.rows.given import TextList
from tercet.data.rows.kept import Kept, kept_columns
from tercet.data.rows.texts import TextFile, TextFiles
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.settings import Embedded, EmbedOptions, EmbedStats
from tercet.errors import InputError, SettingError, TextError
from tercet.storage.choices import Dtype
from tercet.storage.files import atomic_write, check_writable, move_file
from tercet.storage.hashing import text_digest
from tercet.storage.locks import hold_target
from tercet.storage.manifest import forget, record_file, recorded_write
from tercet.storage.progress import Advance, progress_bar
from tercet.storage.shards import Shards, in_shards
from tercet.vectors.formats import Chunk, Layout, Write, about_vectors, writer_for
from tercet.vectors.kept import read_kept

Texts = TextFile | TextFiles | TextList

_NUM_COUNTS = 2
"""Behind the numbers of a vector, a row of a shard has how many tokens were read, and whether the text was cut."""

_REMEMBERED = 2_000_000
"""How many different texts are remembered so that each is embedded once; a quarter of a gigabyte."""


def embed_into(
    out: Path,
    texts: Texts,
    encoder: Encoder,
    *,
    keep: Sequence[str],
    dtype: Dtype,
    shard_texts: int,
    **options: Unpack[EmbedOptions],
) -> EmbedStats:
    """Embed texts into a file of vectors; see `embed`."""
    write = writer_for(out, keep=bool(keep))
    if shard_texts < 1:
        raise SettingError(f"shard_texts {shard_texts}: is less than one. Give a positive number.")
    check_writable(out)
    if out.exists() and any(out.samefile(file.path) for file in texts.files):
        raise SettingError(f"{out}: is the input, which would be lost. Name another target.")
    options["precision"] = encoder.resolve_precision(options.get("precision", "exact"))
    options["max_batch_tokens"] = encoder.batch_tokens(options.get("max_batch_tokens"))
    layout = layout_of(texts, encoder, keep=keep, dtype=dtype, options=options)
    show = bool(options.get("progress"))
    with (
        hold_target(out),
        progress_bar("embedding", total=texts.num_texts, unit="texts", enabled=show) as advance,
    ):
        options["progress"] = advance
        if texts.num_texts > shard_texts:
            return _embed_in_shards(out, texts, encoder, write, layout, shard_texts, advance, options)
        [(all_texts, columns)] = with_columns(texts, layout.kept, shard_texts)
        with named_rows(texts):
            vectors, stats = encoder.embed_with_stats(all_texts, **options)
        with recorded_write(out) as stream:
            write(stream, [Chunk(all_texts, vectors, columns)], layout)
    return stats


def layout_of(texts: Texts, encoder: Encoder, *, keep: Sequence[str], dtype: Dtype, options: EmbedOptions) -> Layout:
    """Return what a file of vectors will hold."""
    dims = options.get("dims") or encoder.dim
    files = [(file.path, file.file_format, file.column) for file in texts.files]
    precision = encoder.resolve_precision(options.get("precision", "exact"))
    about = about_vectors(encoder, precision=precision, dtype=dtype, dims=dims)
    return Layout(texts.num_texts, dims, dtype, kept_columns(files, keep), about)


def _embed_in_shards(
    out: Path,
    texts: Texts,
    encoder: Encoder,
    write: Write,
    layout: Layout,
    shard_texts: int,
    advance: Advance,
    options: EmbedOptions,
) -> EmbedStats:
    files = _open_shards(texts, encoder, out, shard_texts, options)
    shards = _VectorShards(files, texts.num_texts, shard_texts, layout.dims)
    try:
        stats = _fill_shards(shards, texts, encoder, advance, options)
    except Exception as error:
        # after a text that cannot be embedded, texts or options have to change: these shards are of no use then
        if isinstance(error.__cause__, TextError) or not shards.files.any_done():
            shards.files.remove()
        raise
    assembled = shards.files.folder / out.name
    with atomic_write(assembled) as stream:
        write(stream, _read_shards(shards, texts, layout.kept), layout)
    forget(out)
    move_file(assembled, out)
    record_file(out)
    shards.files.remove()
    return stats


@contextlib.contextmanager
def named_rows(texts: Texts, row: Callable[[int], int] = lambda position: position) -> Iterator[None]:
    """Say which row of the file a text is that cannot be embedded; `row` turns a position into a row from 0."""
    try:
        yield
    except TextError as error:
        if isinstance(texts, TextList):
            raise TextError(row(error.position), error.problem) from error
        raise InputError(f"{texts.where(row(error.position))} {error.problem}") from error


def _open_shards(texts: Texts, encoder: Encoder, out: Path, shard_texts: int, options: EmbedOptions) -> Shards:
    plan: dict[str, object] = {
        "texts": texts.sha256,
        "encoder": encoder.fingerprint(),
        "options": {key: value for key, value in options.items() if key != "progress"},
        "device": encoder.device.type,
        "shard_texts": shard_texts,
    }
    return Shards(out.with_name(f"{out.name}.parts"), plan=plan, ending=".npy")


class _VectorShards:
    """Shards of vectors, each read only where it is as it was written and of the right shape.

    Args:
        files: Where they are.
        num_texts: How many texts there are in all.
        shard_texts: How many there are in a shard.
        dim: How many numbers a vector has.
    """

    def __init__(self, files: Shards, num_texts: int, shard_texts: int, dim: int) -> None:
        self.files, self.shard_texts = files, shard_texts
        self._num_texts, self._dim = num_texts, dim
        self._checked: set[int] = set()

    def is_done(self, number: int) -> bool:
        """Return whether a shard is done and good; a bad one is removed, to be made again."""
        if not self.files.path(number).exists():
            return False
        try:
            self.read(number)
        except InputError as error:
            self.files.reject(number, str(error.__cause__))
            return False
        self._checked.add(number)
        return True

    def write(self, number: int, rows: Vectors) -> None:
        """Write a shard, and its hash."""
        with atomic_write(self.files.path(number)) as stream:
            header = {"descr": "<f4", "fortran_order": False, "shape": rows.shape}
            np.lib.format.write_array_header_1_0(stream, header)
            stream.write(rows.astype("<f4", copy=False).tobytes())  # `np.save` hides why a disk takes no more
        self.files.finish(number)
        self._checked.add(number)

    def read(self, number: int) -> Vectors:
        """Return the rows of a shard.

        Raises:
            InputError: It cannot be used.
        """
        file, checked = self.files.path(number), number in self._checked
        num = min(self.shard_texts, self._num_texts - number * self.shard_texts)
        try:
            return read_kept(file, dtype=np.dtype("<f4"), shape=(num, self._dim + _NUM_COUNTS), checked=checked)
        except (ValueError, OSError) as error:
            raise InputError(f"{file}: cannot be used ({error}). Start again.") from error


def _fill_shards(
    shards: _VectorShards, texts: Texts, encoder: Encoder, advance: Advance, options: EmbedOptions
) -> EmbedStats:
    """Embed what is not done yet, every text once: where it stands again, it gets the vector of the first place."""
    waiting: deque[_Shard] = deque()
    stats = EmbedStats()

    def new_texts() -> Iterator[list[str]]:
        for shard in _plan_shards(texts, shards.shard_texts):
            if shards.is_done(shard.number):
                advance(len(shard.firsts), earlier=True)
            else:
                waiting.append(shard)
                yield shard.new_texts

    with named_rows(texts, lambda position: int(waiting[0].new_rows[position])):
        for embedded in encoder.embed_each(new_texts(), **options):
            shard = waiting.popleft()
            shards.write(shard.number, _with_earlier(shard, embedded, shards))
            advance(len(shard.firsts) - len(shard.new_texts))
    for number in range(math.ceil(texts.num_texts / shards.shard_texts)):
        rows = shards.read(number)
        num_tokens, num_truncated = map(int, rows[:, -_NUM_COUNTS:].sum(0, dtype=np.float64))
        stats += EmbedStats(len(rows), num_tokens, num_truncated)
    return stats


@dataclass(frozen=True)
class _Shard:
    number: int
    firsts: NDArray[np.int64]
    """For each text of the shard, the row of the file where it first stands."""

    new_rows: NDArray[np.int64]
    """The rows whose texts stand nowhere before."""

    new_texts: list[str]


def _plan_shards(texts: Texts, shard_texts: int) -> Iterator[_Shard]:
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


def _with_earlier(shard: _Shard, new: Embedded, shards: _VectorShards) -> Vectors:
    """Return the rows of a shard: its texts' vectors and counts, those of earlier texts from their shards."""
    start = shard.number * shards.shard_texts
    computed = np.column_stack([new.vectors, new.num_tokens, new.truncated]).astype(np.float32, copy=False)
    rows = np.empty((len(shard.firsts), computed.shape[1]), np.float32)
    here = shard.firsts >= start
    rows[here] = computed[np.searchsorted(shard.new_rows, shard.firsts[here])]
    numbers, places = np.divmod(shard.firsts, shards.shard_texts)
    for number in np.unique(numbers[~here]):
        theirs = numbers == number
        rows[theirs] = shards.read(int(number))[places[theirs]]
    return rows


def _read_shards(shards: _VectorShards, texts: Texts, kept: Kept) -> Iterator[Chunk]:
    for number, (chunk, columns) in enumerate(with_columns(texts, kept, shards.shard_texts)):
        yield Chunk(chunk, shards.read(number)[:, :-_NUM_COUNTS], columns)


def with_columns(texts: Texts, kept: Kept, size: int) -> Iterator[tuple[list[str], dict[str, list[Any]]]]:
    """Yield so many texts at a time, with what is kept of their rows."""
    if isinstance(texts, TextList) or not kept.names:
        for chunk in in_shards(iter(texts), size):
            yield chunk, {}
        return
    for rows in in_shards(texts.records(), size):
        yield [text for text, _ in rows], {name: [record.get(name) for _, record in rows] for name in kept.names}
