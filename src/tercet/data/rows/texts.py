"""A file of texts, checked as a whole before anything is done with it."""

import contextlib
import itertools
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tercet.data.reading.entries import changed
from tercet.data.reading.formats import check_format, format_of
from tercet.data.rows.kinds import texts_of
from tercet.data.rows.one_file import read_entries
from tercet.data.rows.records import RecordReader
from tercet.errors import InputError
from tercet.storage.hashing import TextsDigest, sha256_of_json

logger = logging.getLogger("tercet")


@dataclass(frozen=True)
class TextFile:
    """A file with one text per row, which may be empty. Iterating reads it from the start."""

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
            column: Which column holds the text; where None, the one that training would take: `text`, one of its
                other names, or the only one there is.
            file_format: A name in FORMATS where the ending does not tell.

        Raises:
            InputError: The file is missing, empty or unreadable.
            RowError: A row is broken or has no text; the message says file:line.
        """
        check_format(file_format)
        file_format = file_format or format_of(path)
        reader, digest, num_texts = _reader(column), TextsDigest(), 0
        for text, _ in _read(path, reader, file_format):
            digest.add(text)
            num_texts += 1
        if num_texts == 0:
            raise InputError(f"{path}: is empty. Give a file with at least one text.")
        logger.info("%s: %s texts in the column %r", path, f"{num_texts:,}", reader.columns["text"][0])
        return cls(path, file_format, reader.columns["text"][0], num_texts, digest.hexdigest())

    def __iter__(self) -> Iterator[str]:
        return (text for text, _ in self.records())

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each text with the record that it stands in."""
        digest = TextsDigest()
        for text, record in _read(self.path, _reader(self.column), self.file_format):
            digest.add(text)
            yield text, record
        if digest.hexdigest() != self.sha256:
            raise changed(self.path)

    @property
    def files(self) -> "tuple[TextFile, ...]":
        """The files that the texts stand in."""
        return (self,)

    def where(self, row: int) -> str:
        """Return what a message calls a row from 0."""
        return f"{self.path}: row {row + 1}"


@dataclass(frozen=True)
class TextFiles:
    """Several files with one text per row, as one."""

    files: tuple[TextFile, ...]

    path: None = None

    @property
    def num_texts(self) -> int:
        """How many texts there are."""
        return sum(file.num_texts for file in self.files)

    @property
    def sha256(self) -> str:
        """One hash over all files."""
        return sha256_of_json([file.sha256 for file in self.files])

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.files)

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each text with the record that it stands in."""
        return itertools.chain.from_iterable(file.records() for file in self.files)

    def where(self, row: int) -> str:
        """Return what a message calls a row from 0."""
        for file in self.files:
            if row < file.num_texts:
                return file.where(row)
            row -= file.num_texts
        raise IndexError(row)


def _reader(column: str | None) -> RecordReader:
    return RecordReader("texts", kind="texts", columns={"text": column} if column is not None else None, empty=True)


def _read(path: Path, reader: RecordReader, file_format: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the texts of a file, each with its record."""
    for entry, rows in read_entries(path, reader, file_format=file_format, fix="Name one with --column."):
        for row in rows:
            for text in texts_of(row):
                yield text, entry.record or {}


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
            if source == "-" and stdin is None and sys.stdin is None:
                raise InputError("-: standard input is closed. Name a file, or give some input.")
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
