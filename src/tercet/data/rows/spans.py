"""Spans: rows of a file that stand one after the other, found again without reading what is before them.

A survey reads a file once from end to end: it checks, counts and hashes, and remembers where each span begins. Whoever
reads a span later, on whatever machine, needs no other part of the file and knows whether it is still the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tercet.data.reading.addresses import Place, place_of, state_of
from tercet.data.reading.datasets import HUB, HubName
from tercet.data.reading.entries import changed, unreadable
from tercet.data.reading.formats import check_format, format_of
from tercet.data.rows.kinds import texts_of
from tercet.data.rows.one_file import read_entries
from tercet.data.rows.records import RecordReader
from tercet.errors import InputError, SettingError
from tercet.storage.hashing import TextsDigest, sha256_of_json

_HUB_FORMAT = "hub"
_FIX = "Name one with --column."


@dataclass(frozen=True, slots=True)
class Source:
    """What is read, and how."""

    path: str
    """The file as it was named: a path, an address, or a dataset of the hub."""

    file_format: str
    column: str

    @property
    def place(self) -> Place | HubName:
        """Where it is."""
        return HubName.parse(self.path) if self.file_format == _HUB_FORMAT else place_of(self.path)

    def __str__(self) -> str:
        return str(self.place)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of a source that stand one after the other."""

    first: int
    """The first row, from 0."""

    num_texts: int
    line: int
    place: int
    """Where the first one starts: the byte, or in Parquet and on the hub the row from 0."""

    sha256: str
    """Of the texts, in their order."""


@dataclass(frozen=True)
class Survey:
    """A source that was read once from end to end, in spans of a fixed number of rows, the last one shorter."""

    source: Source
    state: str
    """What changes when the file does; empty for a dataset of the hub."""

    spans: tuple[Span, ...]

    asked: tuple[str | None, str | None, int]
    """The column and format that were asked for, and how many rows a span has."""

    @property
    def num_texts(self) -> int:
        """How many texts there are."""
        return sum(span.num_texts for span in self.spans)

    @property
    def sha256(self) -> str:
        """One hash over all spans."""
        return sha256_of_json([span.sha256 for span in self.spans])

    def is_current(self) -> bool:
        """Return whether the file looks as it did when it was read."""
        place = self.source.place
        try:
            return not isinstance(place, HubName) and state_of(place) == self.state
        except OSError:
            return False

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON; the name of the file without a password that may be in it."""
        spans = [[span.first, span.num_texts, span.line, span.place, span.sha256] for span in self.spans]
        source = asdict(self.source) | {"path": str(self.source)}
        about = {"state": self.state, "asked": [*self.asked], "num_texts": self.num_texts}
        return {**source, **about, "spans": spans}

    @classmethod
    def from_dict(cls, found: dict[str, Any], *, path: str | None = None) -> "Survey":
        """Return what `to_dict` wrote, of a file that is named again here."""
        source = Source(path or found["path"], found["file_format"], found["column"])
        column, file_format, span_texts = found["asked"]
        spans = tuple(Span(*span) for span in found["spans"])
        return cls(source, found["state"], spans, (column, file_format, span_texts))


def survey(
    path: str,
    *,
    column: str | None = None,
    file_format: str | None = None,
    span_texts: int,
    advance: Callable[[int], object] = lambda _num: None,
) -> Survey:
    """Read a file once from end to end: every row is checked, counted and hashed.

    Args:
        path: A file (lines, JSONL, CSV, TSV, Parquet), an address that fsspec opens, or a dataset (`hub:ID`).
        column: Which column holds the text; where None, `text`, one of its other names, or the only one there is.
        file_format: A name in FORMATS, where the ending does not tell.
        span_texts: How many rows a span has.
        advance: Is told how many rows were read since the last time.

    Raises:
        InputError: The file is missing, empty or unreadable.
        RowError: A row is broken or has no text; the message says file:line.
    """
    check_format(file_format)
    if span_texts < 1:
        raise SettingError(f"shard_texts {span_texts}: is less than one. Give a positive number.")
    place = HubName.parse(path) if path.startswith(HUB) else place_of(path)
    chosen = _HUB_FORMAT if isinstance(place, HubName) else file_format or format_of(place)
    state = "" if isinstance(place, HubName) else _state(place)
    reader, spans = _reader(column), list[Span]()
    digest, start, num = TextsDigest(), (0, 0), 0
    for entry, text in _texts(place, reader, chosen):
        if num == 0:
            start = (entry.line, entry.place)
        digest.add(text)
        num += 1
        if num == span_texts:
            spans.append(Span(len(spans) * span_texts, num, *start, digest.hexdigest()))
            digest, num = TextsDigest(), 0
            advance(span_texts)
    if num:
        spans.append(Span(len(spans) * span_texts, num, *start, digest.hexdigest()))
        advance(num)
    if not spans:
        raise InputError(f"{place}: is empty. Give a file with at least one text.")
    if not isinstance(place, HubName) and _state(place) != state:
        raise changed(place)
    return Survey(
        Source(path, chosen, reader.columns["text"][0]), state, tuple(spans), (column, file_format, span_texts)
    )


def read_span(source: Source, span: Span, *, keep: Sequence[str] = ()) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the texts of a span, and what stands in other columns of its rows.

    Raises:
        InputError: The file cannot be read, or is not as it was surveyed.
    """
    place, reader = source.place, _reader(source.column)
    columns = {source.column, source.column.partition(".")[0], *keep}
    texts, kept = list[str](), dict[str, list[Any]]({name: [] for name in keep})
    digest = TextsDigest()
    start = (span.place, span.line)
    for entry, text in _texts(place, reader, source.file_format, start=start, columns=columns):
        digest.add(text)
        texts.append(text)
        for name, values in kept.items():
            values.append((entry.record or {}).get(name))
        if len(texts) == span.num_texts:
            break
    if digest.hexdigest() != span.sha256:
        raise changed(place)
    return texts, kept


def _state(place: Place) -> str:
    try:
        return state_of(place)
    except OSError as error:
        raise unreadable(place, error) from error


def _reader(column: str | None) -> RecordReader:
    return RecordReader("texts", kind="texts", columns={"text": column} if column is not None else None, empty=True)


def _texts(place: Place | HubName, reader: RecordReader, file_format: str, **how: Any) -> Iterator[tuple[Any, str]]:
    for entry, rows in read_entries(place, reader, file_format=file_format, fix=_FIX, **how):
        for row in rows:
            for text in texts_of(row):
                yield entry, text
