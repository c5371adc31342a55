"""The verb `embed`: texts become vectors, in memory or in a file, however often it is killed."""

import contextlib
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from tercet.data.rows.given import GivenTexts, TextList, given_files, open_given
from tercet.data.rows.texts import TextFile, readable_twice
from tercet.distributed.settings import LOCAL, ClusterSettings, Engine, cluster_of
from tercet.encoder.choice import Model, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.settings import Embedded, EmbedOptions, EmbedStats
from tercet.errors import InputError, SettingError, TextError
from tercet.storage.choices import DEFAULT_MODEL, OnTruncate, TextFormat, check_choice
from tercet.storage.files import atomic_write, check_writable, move_file
from tercet.storage.hashing import text_digest
from tercet.storage.locks import hold_target
from tercet.storage.manifest import forget, record_file, recorded_write
from tercet.storage.progress import Advance, progress_bar
from tercet.storage.shards import Shards, in_shards
from tercet.vectors.folder import embed_folder
from tercet.vectors.kept import read_kept

SHARD_TEXTS = 8192

Texts = TextFile | TextList
TextsAndVectors = tuple[list[str], Vectors]

_NUM_COUNTS = 2
"""Behind the numbers of a vector, a row of a shard has how many tokens were read, and whether the text was cut."""

_REMEMBERED = 2_000_000
"""How many different texts are remembered so that each is embedded once; a quarter of a gigabyte."""


class _Options(EmbedOptions, total=False):
    model: "Model"
    column: str | None
    format: TextFormat | None
    shard_texts: int
    engine: "Engine"


@overload
def embed(texts: "GivenTexts", *, out: None = None, **options: Unpack[_Options]) -> Vectors: ...
@overload
def embed(texts: "GivenTexts", *, out: str | Path, **options: Unpack[_Options]) -> EmbedStats: ...
def embed(
    texts: "GivenTexts",
    *,
    out: str | Path | None = None,
    model: "Model" = DEFAULT_MODEL,
    column: str | None = None,
    format: TextFormat | None = None,
    precision: str = "exact",
    dims: int | None = None,
    normalize: bool | None = None,
    max_batch_tokens: int | None = None,
    on_truncate: OnTruncate = "count",
    shard_texts: int = SHARD_TEXTS,
    engine: "Engine" = LOCAL,
    progress: bool | Advance = False,
) -> Vectors | EmbedStats:
    """Embed texts.

    Into a file, more than one shard of texts is embedded shard by shard, in a folder beside `out` that is removed at
    the end. Killed and called again with the same texts, model and options, it goes on after the last finished shard
    and writes the same bytes. Into a folder, each shard is a Parquet file that stays.

    Args:
        texts: A list of texts; or a file with one text per row (lines, JSONL, CSV, TSV, Parquet), `-` for standard
            input. A file is checked from end to end before the model is loaded.
        out: The file to write: .npy (vectors), .parquet or .jsonl (texts and vectors); or a folder for one Parquet file
            per shard, which many tools read as one table. None to return the vectors.
        model: An encoder by its name (`mini`, a folder, a hub id), its settings, or an Encoder.
        column: Which column holds the text; where None, `text`, `sentence`, `caption`, or the only one there is.
        format: How the file is written, where its ending does not tell.
        precision: `exact` (fp32), `fast` (bf16, fp32 between layers), `int8` (on a CPU), `auto` (`fast` where the
            machine has bf16, else `exact`), or `fp16` (never for T5, which overflows in it).
        dims: Keep only the first numbers of each vector, and scale it to length 1 again where it had that.
        normalize: Whether vectors have length 1; as the model has it where None.
        max_batch_tokens: The most tokens that are computed at once; where None, 2,048 on a CPU, and what its memory
            holds on a GPU.
        on_truncate: Whether texts that are too long are counted (`count`) or refused (`error`).
        shard_texts: How many texts are embedded between two commits; a killed run loses no more.
        engine: Who embeds: this process (`local`), the workers of a cluster (`ray`: a folder of shards with the same
            bytes), or the settings of a cluster, such as `{"address": "auto", "workers": 8}`.
        progress: Whether a bar is shown.

    Returns:
        The vectors, float32 [number of texts, dims], in the order of the texts; with `out`, the counts.

    Raises:
        TercetError: A text, a setting or the model is not as it should be, or the target cannot be written; no half of
            it is left.
    """
    target = None if out is None else Path(out)
    into_folder = target is not None and (str(out).endswith("/") or target.is_dir() or not target.suffix)
    if target is not None and not into_folder:
        writer_for(target)
    cluster = cluster_of(engine)
    if cluster is not None and not into_folder:
        raise SettingError(f"engine: Ray writes a folder of shards, and out is {out}. Name a folder: --out vectors/.")
    check_choice("on_truncate", on_truncate, OnTruncate)
    options: EmbedOptions = {
        "precision": precision,
        "dims": dims,
        "normalize": normalize,
        "max_batch_tokens": max_batch_tokens,
        "on_truncate": on_truncate,
        "progress": progress,
    }
    if target is not None and into_folder:
        with _given_paths(texts) as inputs:
            encoder = load_encoder(model)
            fill = embed_folder if cluster is None else partial(_spread, settings=cluster)
            stats = fill(target, inputs, encoder, column=column, file_format=format, shard_texts=shard_texts, **options)
            return replace(stats, max_tokens=encoder.tokens.max_tokens)
    with open_given(texts, column=column, file_format=format) as opened:
        encoder = load_encoder(model)
        if target is not None:
            stats = embed_into(target, opened, encoder, shard_texts=shard_texts, **options)
            return replace(stats, max_tokens=encoder.tokens.max_tokens)
        with _named_rows(opened):
            return encoder.embed(list(opened), **options)


def _spread(out: Path, inputs: list[str], encoder: Encoder, *, settings: ClusterSettings, **options: Any) -> EmbedStats:
    from tercet.vectors.spread import spread_folder

    return spread_folder(out, inputs, encoder, settings, **options)


@contextlib.contextmanager
def _given_paths(texts: "GivenTexts") -> Iterator[list[str]]:
    """Yield texts as files; what can be read only once is copied for a while."""
    if isinstance(texts, TextFile):
        yield [str(texts.path)]
        return
    with contextlib.ExitStack() as stack:
        yield [str(stack.enter_context(readable_twice(path))) if path == "-" else path for path in given_files(texts)]


def embed_into(
    out: Path,
    texts: Texts,
    encoder: Encoder,
    *,
    shard_texts: int = SHARD_TEXTS,
    **options: Unpack[EmbedOptions],
) -> EmbedStats:
    """Embed texts into a file of vectors; see `embed`."""
    write = writer_for(out)
    if shard_texts < 1:
        raise SettingError(f"shard_texts {shard_texts}: is less than one. Give a positive number.")
    check_writable(out)
    if texts.path is not None and out.exists() and out.samefile(texts.path):
        raise SettingError(f"{out}: is the input, which would be lost. Name another target.")
    options["precision"] = encoder.resolve_precision(options.get("precision", "exact"))
    options["max_batch_tokens"] = encoder.batch_tokens(options.get("max_batch_tokens"))
    show = bool(options.get("progress"))
    with (
        hold_target(out),
        progress_bar("embedding", total=texts.num_texts, unit="texts", enabled=show) as advance,
    ):
        options["progress"] = advance
        if texts.num_texts > shard_texts:
            return _embed_in_shards(out, texts, encoder, write, shard_texts, advance, options)
        all_texts = list(texts)
        with _named_rows(texts):
            vectors, stats = encoder.embed_with_stats(all_texts, **options)
        with recorded_write(out) as stream:
            write(stream, [(all_texts, vectors)], vectors.shape)
    return stats


def _embed_in_shards(
    out: Path,
    texts: Texts,
    encoder: Encoder,
    write: "Write",
    shard_texts: int,
    advance: Advance,
    options: EmbedOptions,
) -> EmbedStats:
    dim = options.get("dims") or encoder.dim
    shards = _VectorShards(_open_shards(texts, encoder, out, shard_texts, options), texts.num_texts, shard_texts, dim)
    try:
        stats = _fill_shards(shards, texts, encoder, advance, options)
    except Exception as error:
        # after a text that cannot be embedded, texts or options have to change: these shards are of no use then
        if isinstance(error.__cause__, TextError) or not shards.files.any_done():
            shards.files.remove()
        raise
    assembled = shards.files.folder / out.name
    with atomic_write(assembled) as stream:
        write(stream, _read_shards(shards, texts), (texts.num_texts, dim))
    forget(out)
    move_file(assembled, out)
    record_file(out)
    shards.files.remove()
    return stats


@contextlib.contextmanager
def _named_rows(texts: Texts, row: Callable[[int], int] = lambda position: position) -> Iterator[None]:
    """Say which row of the file a text is that cannot be embedded; `row` turns a position into a row from 0."""
    try:
        yield
    except TextError as error:
        if texts.path is None:
            raise TextError(row(error.position), error.problem) from error
        raise InputError(f"{texts.path}: row {row(error.position) + 1} {error.problem}") from error


Write = Callable[[IO[bytes], Iterable[TextsAndVectors], tuple[int, ...]], None]
"""Writes texts and their vectors, of a shape in all, in a file's format."""


def writer_for(out: Path) -> Write:
    """Return the function that writes vectors in the format of a file's ending.

    Raises:
        SettingError: It is no format for vectors.
    """
    writer = _WRITERS.get(out.suffix.lower())
    if writer is None:
        raise SettingError(f"{out}: no format for vectors. End the name in one of: {', '.join(_WRITERS)}.")
    return writer


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
            _write_npy(stream, [([], rows)], rows.shape)
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

    with _named_rows(texts, lambda position: int(waiting[0].new_rows[position])):
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


def _read_shards(shards: _VectorShards, texts: Texts) -> Iterator[TextsAndVectors]:
    for number, chunk in enumerate(in_shards(iter(texts), shards.shard_texts)):
        yield chunk, shards.read(number)[:, :-_NUM_COUNTS]


def _write_npy(stream: IO[bytes], embedded: Iterable[TextsAndVectors], shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    for _, vectors in embedded:
        stream.write(vectors.astype("<f4", copy=False).tobytes())


def _write_parquet(stream: IO[bytes], embedded: Iterable[TextsAndVectors], shape: tuple[int, ...]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    schema = pa.schema([("text", pa.string()), ("embedding", pa.list_(pa.float32(), shape[1]))])
    with pyarrow.parquet.ParquetWriter(stream, schema) as writer:
        for texts, vectors in embedded:
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), shape[1])
            writer.write_table(pa.table([pa.array(texts, pa.string()), column], schema=schema))


def _write_jsonl(stream: IO[bytes], embedded: Iterable[TextsAndVectors], _shape: tuple[int, ...]) -> None:
    for texts, vectors in embedded:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            line = json.dumps({"text": text, "embedding": vector}, ensure_ascii=False)
            stream.write(line.encode() + b"\n")


_WRITERS: dict[str, Write] = {
    ".npy": _write_npy,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
