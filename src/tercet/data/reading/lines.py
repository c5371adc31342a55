"""Text files of records, read in order or from the byte where a record starts."""

import csv
import itertools
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import IO, Any

from tercet.data.reading.addresses import Place, state_of
from tercet.data.reading.entries import Entry, changed, unreadable
from tercet.errors import RowError
from tercet.storage.documents import parse_json

LINE_COLUMN = "text"
"""The one column of a file of plain lines."""

_BOM = b"\xef\xbb\xbf"
_MAX_FIELD_CHARS = 2**31 - 1
_MAX_RECORD_LINES = 10_000
_MAX_LINE_BYTES = 2**25


class _Problem(Exception):
    """A line is of no use; says why, and the fix."""


class LineFile:
    """A text file of records; `entries` and `record_at` share its position, so one ends before the other begins.

    It is closed by `close`, or when nobody has it any more.

    Args:
        path: The file.
        file_format: A name in FORMATS, but not `parquet`.
        names: The columns of a table without a header.

    Raises:
        InputError: The file is missing or cannot be read.
        RowError: The header is broken.
    """

    names: tuple[str, ...] | None = None  # JSON may have other keys in each line
    blocks: list[int] | None = None

    def __init__(self, path: Place, file_format: str, *, names: Sequence[str] | None = None) -> None:
        self.path = path
        try:
            self._stream: IO[bytes] = path.open("rb")
            self.close = weakref.finalize(self, self._stream.close)
            self._first = len(_BOM) if self._stream.read(len(_BOM)) == _BOM else 0
            self._state = state_of(path, self._stream)
        except OSError as error:
            raise unreadable(path, error) from error
        self._first_line = 1
        split = _TABLES.get(file_format)
        if split is None:
            self._parse = _PARSERS[file_format]
        else:
            names = names or self._read_header(split)
            self._parse = _rows_of_table(split, names, may_be_short=file_format == "snli")

    def use(self, columns: Collection[str]) -> None:
        """Do nothing: lines are read as a whole."""

    def entries(self) -> Iterator[Entry]:
        """Yield what stands in the file, from its start."""
        return self.entries_from(self._first, line=self._first_line)

    def record_at(self, place: int) -> dict[str, Any]:
        """Return the record that starts at a byte.

        Raises:
            InputError: There is none: the file is not as it was.
        """
        entry = next(self.entries_from(place), None)
        if entry is None or entry.record is None:
            raise changed(self.path)
        return entry.record

    def entries_from(self, place: int, *, line: int = 0) -> Iterator[Entry]:
        """Yield what stands in the file, from the record on that starts at a byte; the first one has this line."""
        stream, parse = self._stream, self._parse
        try:
            stream.seek(place)
            while raw := stream.readline(_MAX_LINE_BYTES + 1):
                used = [raw]
                if len(raw) > _MAX_LINE_BYTES:
                    raise RowError(f"{self.path}:{line}: has more than {_MAX_LINE_BYTES:,} bytes. Split the line.")
                try:
                    record, problem = parse(raw, _continued(stream, used)), ""
                except _Problem as error:
                    record, problem = None, str(error)
                    if len(used) > 1:  # perhaps only the first line is broken
                        stream.seek(place + len(raw))
                        used = [raw]
                yield Entry(line, place, record, problem, raw)
                line += len(used)
                place += sum(map(len, used))
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _read_header(self, split: "_Split") -> list[str]:
        self._stream.seek(self._first)
        used = [self._stream.readline(_MAX_LINE_BYTES)]
        if not used[0]:
            return []
        try:
            names = split(used[0], _continued(self._stream, used))
        except _Problem as error:
            raise RowError(f"{self.path}:1: {error}") from error
        for name in names:
            if names.count(name) > 1:
                raise RowError(f"{self.path}:1: has two columns {name!r}. Rename one.")
        self._first += sum(map(len, used))
        self._first_line += len(used)
        return names

    def check_unchanged(self) -> None:
        """Raise InputError if somebody wrote to the file."""
        if state_of(self.path, self._stream) != self._state:
            raise changed(self.path)


def _continued(stream: IO[bytes], used: list[bytes]) -> Iterator[bytes]:
    """Yield the lines after a first one, and add them to `used`."""
    num_bytes = 0
    while raw := stream.readline(_MAX_LINE_BYTES):
        used.append(raw)
        num_bytes += len(raw)
        if len(used) > _MAX_RECORD_LINES or num_bytes > _MAX_LINE_BYTES:
            raise _Problem(f"a quote opens that {_MAX_RECORD_LINES:,} lines do not close. Close it or remove it.")
        yield raw


_Parse = Callable[[bytes, Iterator[bytes]], dict[str, Any]]
"""Makes a record of a line, and of those after it where it needs them."""

_Split = Callable[[bytes, Iterator[bytes]], list[str]]
"""Makes cells of a line, and of those after it where it needs them."""


def _decode(raw: bytes) -> str:
    """Return a line without its end."""
    if b"\0" in raw:
        raise _Problem("has a NUL byte. Is this a text file? Remove the byte.")
    try:
        return raw.rstrip(b"\r\n").decode()
    except UnicodeDecodeError as error:
        raise _Problem(f"is not UTF-8 at byte {error.start}. Convert the file: iconv -t UTF-8.") from error


def _parse_line(raw: bytes, _more: Iterator[bytes]) -> dict[str, Any]:
    return {LINE_COLUMN: _decode(raw)}


def _parse_json(raw: bytes, _more: Iterator[bytes]) -> dict[str, Any]:
    try:
        record = parse_json(_decode(raw))
    except ValueError as error:
        raise _Problem(f"is not JSON ({error}). Fix or remove the line.") from error
    if not isinstance(record, dict):
        raise _Problem(f"is {type(record).__name__}, not an object. Write {{...}} on each line.")
    return record


def _split_tsv(raw: bytes, _more: Iterator[bytes]) -> list[str]:
    return _decode(raw).split("\t")


def _split_csv(raw: bytes, more: Iterator[bytes]) -> list[str]:
    csv.field_size_limit(_MAX_FIELD_CHARS)
    lines = (_decode(line) + "\n" for line in itertools.chain([raw], more))
    try:
        return next(csv.reader(lines, strict=True))
    except csv.Error as error:
        raise _Problem(f"{error}. Fix the row.") from error


def _rows_of_table(split: _Split, names: Sequence[str], *, may_be_short: bool) -> _Parse:
    def parse(raw: bytes, more: Iterator[bytes]) -> dict[str, Any]:
        cells = split(raw, more)
        if len(cells) != len(names):
            missing = names[len(cells) :]
            if not (may_be_short and missing and all(_ANNOTATOR.fullmatch(name) for name in missing)):
                raise _Problem(f"has {len(cells)} columns where the header has {len(names)}. Fix the row.")
        return dict(zip(names, cells, strict=False))

    return parse


_ANNOTATOR = re.compile(r"label\d")
_PARSERS: dict[str, _Parse] = {"lines": _parse_line, "jsonl": _parse_json}
_TABLES: dict[str, _Split] = {"csv": _split_csv, "tsv": _split_tsv, "snli": _split_tsv}
