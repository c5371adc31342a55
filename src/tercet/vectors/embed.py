"""The verb `embed`: texts become vectors, in memory, in a file or as lines, however often it is killed."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack, overload

from tercet.data.rows.given import GivenTexts, given_files, open_given
from tercet.data.rows.texts import TextFile, TextFiles, readable_twice
from tercet.distributed.settings import LOCAL, ClusterSettings, Engine, cluster_of
from tercet.encoder.choice import Model, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.settings import EmbedOptions, EmbedStats
from tercet.errors import SettingError
from tercet.storage.choices import DEFAULT_MODEL, Dtype, OnTruncate, TextFormat, check_choice
from tercet.storage.progress import Advance, progress_bar
from tercet.storage.texts import several
from tercet.vectors.assembled import Texts, embed_into, layout_of, named_rows, with_columns
from tercet.vectors.folder import embed_folder
from tercet.vectors.formats import Chunk, is_file_of_vectors, write_jsonl, writer_for

SHARD_TEXTS = 8192

_LINE_TEXTS = 1024
"""How many texts are embedded between two writings to standard output."""

STDOUT = "-"
"""As a target, standard output."""


class _Options(EmbedOptions, total=False):
    model: "Model"
    column: str | None
    format: TextFormat | None
    keep: Sequence[str]
    dtype: Dtype
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
    keep: Sequence[str] = (),
    dtype: Dtype = "float32",
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
            input; or a list of Paths, of files and patterns, whose rows follow one another. Files are checked from end
            to end before the model is loaded.
        out: The file to write: .npy (vectors), .parquet or .jsonl (texts and vectors); or a folder for one Parquet file
            per shard, which many tools read as one table; `-` for JSONL on standard output, as it is computed. None to
            return the vectors.
        model: An encoder by its name (`mini`, a folder, a hub id), its settings, or an Encoder.
        column: Which column holds the text; where None, `text`, `sentence`, `caption`, or the only one there is.
        format: How the file is written, where its ending does not tell.
        keep: Other columns of the files, which stand beside the texts; `all` for all of them.
        dtype: How the numbers are written: `float32`; `float16`; `int8` with a `scale` for each vector, which its
            numbers are multiplied with; or `binary`, eight signs in a byte.
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
    check_choice("on_truncate", on_truncate, OnTruncate)
    check_choice("dtype", dtype, Dtype)
    columns = several(keep)
    if out is None and (columns or dtype != "float32"):
        raise SettingError("keep, dtype: are for files. Name one with out, or leave them out.")
    into_folder = out is not None and _is_folder(out)
    if out is not None and str(out) != STDOUT and not into_folder:
        writer_for(Path(out), keep=bool(columns))
    cluster = cluster_of(engine)
    if cluster is not None and not into_folder:
        raise SettingError(f"engine: Ray writes a folder of shards, and out is {out}. Name a folder: --out vectors/.")
    options: EmbedOptions = {
        "precision": precision,
        "dims": dims,
        "normalize": normalize,
        "max_batch_tokens": max_batch_tokens,
        "on_truncate": on_truncate,
        "progress": progress,
    }
    if out is not None and into_folder:
        with _given_paths(texts) as inputs:
            encoder = load_encoder(model)
            fill = embed_folder if cluster is None else partial(_spread, settings=cluster)
            stats = fill(
                Path(out),
                inputs,
                encoder,
                column=column,
                file_format=format,
                shard_texts=shard_texts,
                keep=columns,
                dtype=dtype,
                **options,
            )
            return replace(stats, max_tokens=encoder.tokens.max_tokens)
    with open_given(texts, column=column, file_format=format) as opened:
        encoder = load_encoder(model)
        if out is None:
            with named_rows(opened):
                return encoder.embed(list(opened), **options)
        if str(out) == STDOUT:
            stats = _embed_as_lines(opened, encoder, columns, dtype, options)
        else:
            stats = embed_into(
                Path(out), opened, encoder, keep=columns, dtype=dtype, shard_texts=shard_texts, **options
            )
        return replace(stats, max_tokens=encoder.tokens.max_tokens)


def _is_folder(out: str | Path) -> bool:
    """Return whether a target is one for a folder of shards: by the slash at its end, or because it has no ending."""
    if str(out) == STDOUT or is_file_of_vectors(Path(out)):
        return False
    return str(out).endswith("/") or Path(out).is_dir() or not Path(out).suffix


def _spread(out: Path, inputs: list[str], encoder: Encoder, *, settings: ClusterSettings, **options: Any) -> EmbedStats:
    from tercet.vectors.spread import spread_folder

    return spread_folder(out, inputs, encoder, settings, **options)


@contextlib.contextmanager
def _given_paths(texts: "GivenTexts") -> Iterator[list[str]]:
    """Yield texts as files; what can be read only once is copied for a while."""
    if isinstance(texts, TextFile | TextFiles):
        yield [str(file.path) for file in texts.files]
        return
    with contextlib.ExitStack() as stack:
        yield [str(stack.enter_context(readable_twice(path))) if path == "-" else path for path in given_files(texts)]


def _embed_as_lines(
    texts: Texts, encoder: Encoder, keep: Sequence[str], dtype: Dtype, options: EmbedOptions
) -> EmbedStats:
    """Write JSONL to standard output, some texts at a time: who reads it may begin at once."""
    layout, stats = layout_of(texts, encoder, keep=keep, dtype=dtype, options=options), EmbedStats()
    show = bool(options.get("progress"))
    num_done = 0
    with progress_bar("embedding", total=texts.num_texts, unit="texts", enabled=show) as advance:
        options["progress"] = advance
        for chunk, columns in with_columns(texts, layout.kept, _LINE_TEXTS):
            with named_rows(texts, num_done.__add__):
                vectors, own = encoder.embed_with_stats(chunk, **options)
            write_jsonl(sys.stdout.buffer, [Chunk(chunk, vectors, columns)], layout)
            sys.stdout.buffer.flush()
            num_done, stats = num_done + len(chunk), stats + own
    return stats
