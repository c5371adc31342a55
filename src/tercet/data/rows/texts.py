"""A file of texts, checked as a whole before anything is done with it."""

import contextlib
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tercet.data.reading.formats import LINE_COLUMN, check_format, format_of, read_records
from tercet.errors import InputError, RowError


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
            digest.update(_hashed(_text_of(path, number, record, column or LINE_COLUMN)))
            num_texts += 1
        if num_texts == 0:
            raise InputError(f"{path}: is empty. Give a file with at least one text.")
        return cls(path, file_format, column or LINE_COLUMN, num_texts, digest.hexdigest())

    def __iter__(self) -> Iterator[str]:
        digest = hashlib.sha256()
        for number, record in read_records(self.path, self.file_format):
            text = _text_of(self.path, number, record, self.column)
            digest.update(_hashed(text))
            yield text
        if digest.hexdigest() != self.sha256:
            raise InputError(f"{self.path}: changed while it was read. Start again when it is complete.")


@contextlib.contextmanager
def readable_twice(source: str, stdin: IO[bytes] | None = None) -> Iterator[Path]:
    """Yield a file that can be checked before it is used: the source itself, or a copy of what can be read only once.

    Args:
        source: A file, a pipe, or `-` for standard input.
        stdin: What standard input is.

    Raises:
        InputError: The source cannot be read or copied.
    """
    path = Path(source)
    if source != "-" and not _is_pipe(path):
        yield path
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tercet-"))
            copy = Path(folder) / ("standard-input" if source == "-" else path.name)
            stream = (stdin or sys.stdin.buffer) if source == "-" else stack.enter_context(path.open("rb"))
            with copy.open("wb") as target:
                shutil.copyfileobj(stream, target)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(
                f"{source}: cannot be copied ({reason}). Check the disk, or write it into a file."
            ) from error
        yield copy


def _is_pipe(path: Path) -> bool:
    try:
        return path.exists() and not path.is_file() and not path.is_dir()
    except OSError:  # opening it will say why
        return False


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
        kind = "null" if text is None else type(text).__name__
        raise RowError(f"{path}:{number}: {column!r} is {kind}, not text. Write a string.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RowError(f"{path}:{number}: {column!r} has half a surrogate pair. Write whole characters.") from error
    return text


def _hashed(text: str) -> bytes:
    return f"{len(text)}\0{text}".encode()
