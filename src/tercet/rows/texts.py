"""A file of texts, checked as a whole before anything is done with it."""

import hashlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tercet.errors import InputError, RowError
from tercet.rows.formats import LINE_COLUMN, check_format, format_of, read_records


@dataclass(frozen=True)
class TextFile:
    """A file with one text a row. Iterating reads it from the start."""

    path: Path
    file_format: str
    column: str
    num_texts: int
    sha256: str
    """Of the texts, whatever file they stand in."""

    @classmethod
    def open(cls, path: Path, *, column: str | None = None, file_format: str | None = None) -> "TextFile":
        """Read a file once from end to end: every row is checked, counted and hashed.

        Args:
            path: Lines, JSONL, CSV, TSV or Parquet, by its ending.
            column: Which column holds the text; `text`, or the only one there is, where None.
            file_format: A name in FORMATS where the ending does not tell.

        Raises:
            InputError: The file is missing, empty or unreadable.
            RowError: A row is broken or has no text; the message says file:line.
        """
        check_format(file_format)
        file_format = file_format or format_of(path)
        digest, num_texts = hashlib.sha256(), 0
        for number, record in read_records(path, file_format):
            if num_texts == 0:
                column = _choose_column(path, number, record, column)
            text = _text_of(path, number, record, column or LINE_COLUMN)
            digest.update(f"{len(text)}\0{text}".encode())
            num_texts += 1
        if num_texts == 0:
            raise InputError(f"{path}: is empty. Give a file with at least one text.")
        return cls(path, file_format, column or LINE_COLUMN, num_texts, digest.hexdigest())

    def __iter__(self) -> Iterator[str]:
        for number, record in read_records(self.path, self.file_format):
            yield _text_of(self.path, number, record, self.column)


def spool_stdin(folder: Path, stdin: IO[bytes] | None = None) -> Path:
    """Copy standard input into a file, so that it can be checked before it is used."""
    path = folder / "standard-input"
    with path.open("wb") as target:
        shutil.copyfileobj(stdin or sys.stdin.buffer, target)
    return path


def _choose_column(path: Path, number: int, record: dict[str, Any], column: str | None) -> str:
    names = list(record)
    if column is None:
        column = LINE_COLUMN if LINE_COLUMN in record or len(names) != 1 else names[0]
    if column not in record:
        raise RowError(
            f"{path}:{number}: has no column {column!r}. It has: {', '.join(names)}. Name one with --column."
        )
    return column


def _text_of(path: Path, number: int, record: dict[str, Any], column: str) -> str:
    if column not in record:
        raise RowError(f"{path}:{number}: has no column {column!r}. Add it or remove the row.")
    text = record[column]
    if not isinstance(text, str):
        raise RowError(f"{path}:{number}: {column!r} is {type(text).__name__}, not text. Write a string.")
    return text
