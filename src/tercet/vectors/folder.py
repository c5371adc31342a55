"""Embedding into a folder of shards: how each is made, by whatever process, and one process that makes them all."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from tercet.data.reading.addresses import expand, place_of
from tercet.data.rows.kept import Kept, kept_columns
from tercet.data.rows.spans import Survey, read_span, survey
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.settings import EmbedOptions, EmbedStats
from tercet.errors import InputError, TextError
from tercet.storage.choices import Dtype
from tercet.storage.files import make_folder
from tercet.storage.locks import hold_target
from tercet.storage.progress import Advance, progress_bar
from tercet.vectors.formats import Chunk, Layout, about_vectors, arrow_table
from tercet.vectors.parts import Made, Part, VectorFolder, is_done, parts_of, read_surveys, write_part


@dataclass(frozen=True)
class Making:
    """How shards are made: all that a process needs to know besides the encoder."""

    folder: Path
    options: EmbedOptions
    keep: tuple[str, ...] = ()
    """Columns of the inputs that stand before the texts."""

    types: Mapping[str, Any] | None = None
    """The Arrow types of these columns; see `Kept`."""

    dtype: Dtype = "float32"
    """How the numbers of vectors are written."""

    def plan(self, encoder: Encoder, *, shard_texts: int) -> dict[str, Any]:
        """Return everything that decides what the shards hold, but the inputs."""
        return {
            "format": 1,
            "encoder": encoder.fingerprint(),
            "options": {name: value for name, value in self.options.items() if name != "progress"},
            "device": encoder.device.type,
            "shard_texts": shard_texts,
            "keep": list(self.keep),
            "dtype": self.dtype,
        }

    def make(self, parts: Iterable[Part], encoder: Encoder) -> Iterator[Made]:
        """Make shards one after the other, and yield what became of each.

        The next one is read and tokenised while one is computed. Equal texts of a shard are embedded once.

        Raises:
            InputError: A text cannot be embedded; the message says which row of which file.
        """
        waiting: deque[tuple[Part, list[str], dict[str, list[Any]], dict[str, int]]] = deque()

        def different_texts() -> Iterator[list[str]]:
            for part in parts:
                texts, kept = read_span(part.source, part.span, keep=self.keep)
                places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
                waiting.append((part, texts, kept, places))
                yield [*places]

        try:
            for embedded in encoder.embed_each(different_texts(), **self.options):
                part, texts, kept, places = waiting.popleft()
                rows = embedded[np.array([places[text] for text in texts])] if len(places) < len(texts) else embedded
                num = rows.stats
                yield write_part(
                    self.folder,
                    part,
                    self._table(encoder, texts, rows.vectors, kept),
                    num_tokens=num.num_tokens,
                    num_truncated=num.num_truncated,
                )
        except TextError as error:
            part, texts, _, places = waiting[0]
            row = part.span.first + texts.index([*places][error.position])
            raise InputError(f"{part.source}: row {row + 1} {error.problem}") from error

    def _table(self, encoder: Encoder, texts: list[str], vectors: Vectors, kept: dict[str, list[Any]]) -> Any:
        """Return the rows of a shard as an Arrow table."""
        about = about_vectors(encoder, precision=self.options["precision"], dtype=self.dtype, dims=vectors.shape[1])
        layout = Layout(len(texts), vectors.shape[1], self.dtype, Kept(self.types or {}), about)
        return arrow_table(Chunk(texts, vectors, kept), layout)


Asked = tuple[str | None, str | None, int]
"""Which column holds the text, how files are written (as they tell themselves where None), the texts of a shard."""


def earlier_surveys(out: Path, paths: Sequence[str], asked: Asked) -> dict[str, Survey]:
    """Return the surveys of files that are as they were when a folder was filled from them the last time."""
    known = {found["path"]: found for found in read_surveys(out)}
    surveys = {}
    for path in paths:
        found = known.get(str(place_of(path)))
        old = None if found is None else Survey.from_dict(found, path=path)
        if old is not None and old.asked == asked and old.is_current():
            surveys[path] = old
    return surveys


def _survey_all(paths: Sequence[str], out: Path, asked: Asked, *, show: bool) -> list[Survey]:
    """Return surveys of files in their order; those that are new or changed are read."""
    found = earlier_surveys(out, paths, asked)
    column, file_format, span_texts = asked
    with progress_bar("reading", total=None, unit="texts", enabled=show) as advance:
        for path in paths:
            if path not in found:
                how = {"column": column, "file_format": file_format}
                found[path] = survey(path, **how, span_texts=span_texts, advance=advance)
    return [found[path] for path in paths]


def embed_folder(
    out: Path,
    inputs: Sequence[str | Path],
    encoder: Encoder,
    *,
    column: str | None = None,
    file_format: str | None = None,
    shard_texts: int,
    keep: Sequence[str] = (),
    dtype: Dtype = "float32",
    **options: Unpack[EmbedOptions],
) -> EmbedStats:
    """Embed files into a folder of shards, in this process; see `embed`."""
    options["precision"] = encoder.resolve_precision(options.get("precision", "exact"))
    options["max_batch_tokens"] = encoder.batch_tokens(options.get("max_batch_tokens"))
    show = bool(options.get("progress"))
    make_folder(out.parent)
    with hold_target(out):
        surveys = _survey_all(expand(inputs), out, (column, file_format, shard_texts), show=show)
        kept = kept_of(surveys, keep)
        making = Making(out, options, kept.names, kept.types, dtype)
        folder = VectorFolder(out, plan=making.plan(encoder, shard_texts=shard_texts), surveys=surveys)
        with progress_bar("embedding", total=folder.num_texts, unit="texts", enabled=show) as advance:
            options["progress"] = advance
            for made in making.make(_undone(folder, advance), encoder):
                folder.record(made)
        return total(folder.finish())


def kept_of(surveys: Sequence[Survey], keep: Sequence[str]) -> Kept:
    """Return which columns of the inputs are kept, with their types."""
    sources = (survey.source for survey in surveys)
    return kept_columns(((source.place, source.file_format, source.column) for source in sources), keep)


def _undone(folder: VectorFolder, advance: Advance) -> Iterator[Part]:
    """Yield the shards that are still to be made."""
    for part in parts_of(folder.surveys):
        made = folder.recorded(part)
        if made is not None and is_done(folder.folder, made):
            advance(part.span.num_texts, earlier=True)
        else:
            yield part


def total(lines: Iterable[Made]) -> EmbedStats:
    """Return the counts over shards."""
    return sum((EmbedStats(made.num_texts, made.num_tokens, made.num_truncated) for made in lines), EmbedStats())
