"""Files of records: plain lines, JSONL, CSV, TSV and Parquet, read one record at a time."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tercet.errors import InputError, RowError, SettingError

Record = tuple[int, dict[str, Any]]
"""A line number (from 1) and the record there."""

LINE_COLUMN = "text"
"""The one column of a file of plain lines."""

_BOM = b"\xef\xbb\xbf"
_MAX_FIELD_CHARS = 2**31 - 1


def read_records(path: Path, file_format: str | None = None) -> Iterator[Record]:
    """Yield the records of a file.

    Args:
        path: The file.
        file_format: A name in FORMATS; by the file's ending where None.

    Raises:
        InputError: The file is missing or cannot be read.
        RowError: A line is broken; the message says file:line.
    """
    reader = FORMATS[file_format or format_of(path)]
    try:
        yield from reader(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}. Check the name and its permissions.") from error


def format_of(path: Path) -> str:
    """Return a file's format by its ending; what has none of the known endings is a file of plain lines."""
    ending = path.suffix.lower().removeprefix(".")
    return {"ndjson": "jsonl"}.get(ending, ending if ending in FORMATS else "lines")


def check_format(name: str | None) -> None:
    """Raise SettingError if there is no format of that name."""
    if name is not None and name not in FORMATS:
        raise SettingError(f"format {name!r}: there is none of that name. Known: {', '.join(FORMATS)}.")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines: UTF-8 without line ends, a byte order mark dropped, NUL bytes refused."""
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            if number == 1 and raw == _BOM:
                return
            line = raw.removeprefix(_BOM) if number == 1 else raw
            if b"\0" in line:
                raise RowError(f"{path}:{number}: has a NUL byte. Is this a text file? Remove the byte.")
            try:
                yield number, line.rstrip(b"\r\n").decode("utf-8")
            except UnicodeDecodeError as error:
                raise RowError(
                    f"{path}:{number}: is not UTF-8 at byte {error.start}. Convert the file: iconv -t UTF-8."
                ) from error


def _read_lines(path: Path) -> Iterator[Record]:
    for number, line in _lines(path):
        yield number, {LINE_COLUMN: line}


def _read_jsonl(path: Path) -> Iterator[Record]:
    for number, line in _lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RowError(f"{path}:{number}: is not JSON ({error}). Fix or remove the line.") from error
        if not isinstance(record, dict):
            raise RowError(f"{path}:{number}: is {type(record).__name__}, not an object. Write {{...}} on each line.")
        yield number, record


def _read_table(path: Path, **dialect: Any) -> Iterator[Record]:
    csv.field_size_limit(_MAX_FIELD_CHARS)
    rows = csv.reader((line + "\n" for _, line in _lines(path)), strict=True, **dialect)
    try:
        header = next(rows, None)
        if header is None:
            return
        for name in header:
            if header.count(name) > 1:
                raise RowError(f"{path}:1: has two columns {name!r}. Rename one.")
        for row in rows:
            if len(row) != len(header):
                raise RowError(
                    f"{path}:{rows.line_num}: has {len(row)} columns where the header has {len(header)}. Fix the row."
                )
            yield rows.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise RowError(f"{path}:{rows.line_num}: {error}. Fix the row.") from error


def _read_csv(path: Path) -> Iterator[Record]:
    return _read_table(path)


def _read_tsv(path: Path) -> Iterator[Record]:
    return _read_table(path, delimiter="\t", quoting=csv.QUOTE_NONE)


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    try:
        with path.open("rb") as stream:
            number = 0
            for batch in pyarrow.parquet.ParquetFile(stream).iter_batches():
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not a Parquet file that can be read ({error}). Write it again.") from error


FORMATS: dict[str, Callable[[Path], Iterator[Record]]] = {
    "lines": _read_lines,
    "jsonl": _read_jsonl,
    "csv": _read_csv,
    "tsv": _read_tsv,
    "parquet": _read_parquet,
}
