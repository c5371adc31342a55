"""Files of records by their format: plain lines, JSONL, CSV, TSV, Parquet and TMX."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from tercet.data.reading.addresses import Place
from tercet.data.reading.lines import LINE_COLUMN as LINE_COLUMN
from tercet.data.reading.lines import LineFile
from tercet.data.reading.parquet import ParquetFile
from tercet.data.reading.tmx import TmxFile
from tercet.errors import InputError, RowError, SettingError

Record = tuple[int, dict[str, Any]]
"""A line number (from 1) and the record there."""

Format = Literal["lines", "jsonl", "csv", "tsv", "parquet", "snli", "tmx"]
"""`snli` is TSV as SNLI and MultiNLI have it in their .txt files: labels of annotators may be missing at the end."""

FORMATS: tuple[str, ...] = get_args(Format)

_SNLI_HEADER = b"gold_label\t"


def read_records(path: Path, file_format: str | None = None) -> Iterator[Record]:
    """Yield the records of a file.

    Args:
        path: The file.
        file_format: A name in FORMATS; by the file's ending where None.

    Raises:
        InputError: The file is missing or cannot be read.
        RowError: A line is broken; the message says file:line.
    """
    with contextlib.closing(open_file(path, file_format or format_of(path))) as file:
        for line, _, record, problem, _ in file.entries():
            if record is None:
                raise RowError(f"{path}:{line}: {problem}")
            yield line, record


def open_file(path: Place, file_format: str, *, names: Sequence[str] | None = None) -> LineFile | ParquetFile | TmxFile:
    """Open a file.

    Args:
        path: The file.
        file_format: A name in FORMATS.
        names: The columns of a CSV or TSV file that has no header.

    Raises:
        InputError: The file is missing or cannot be read.
        RowError: The header is broken.
    """
    if file_format == "tmx":
        if not isinstance(path, Path):
            raise InputError(f"{path}: TMX is only read from this machine. Copy the file here.")
        return TmxFile(path)
    return ParquetFile(path) if file_format == "parquet" else LineFile(path, file_format, names=names)


def format_of(path: Place) -> str:
    """Return a file's format by its ending; what has none of the known endings is a file of plain lines."""
    ending = path.suffix.lower().removeprefix(".")
    return {"ndjson": "jsonl"}.get(ending, ending if ending in FORMATS else "lines")


def format_in(path: Place) -> str:
    """Return a file's format by its ending, and `snli` where plain lines begin with its header."""
    file_format = format_of(path)
    if file_format == "lines" and path.is_file():
        with contextlib.suppress(OSError), path.open("rb") as stream:  # opening it again will say why
            file_format = "snli" if stream.read(len(_SNLI_HEADER)) == _SNLI_HEADER else "lines"
    return file_format


def check_format(name: str | None) -> None:
    """Raise SettingError if there is no format of that name."""
    if name is not None and name not in FORMATS:
        raise SettingError(f"format {name!r}: there is none of that name. Known: {', '.join(FORMATS)}.")
