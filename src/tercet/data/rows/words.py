"""Texts as words, so that those of two files can be compared: capital letters and punctuation make no difference."""

import contextlib
import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any

from tercet.data.reading.entries import unreadable
from tercet.data.reading.formats import format_of, read_records
from tercet.data.rows.clean import num_words
from tercet.errors import InputError
from tercet.storage.documents import parse_json

LEAST_WORDS = 4
"""Texts with fewer words are not looked for: names and single words stand everywhere."""

_LABEL = re.compile(r"[A-Z]+:\w+ ")  # before the questions of TREC


def texts_below(*paths: Path) -> set[str]:
    """Return all texts in files, and in the files below folders, as words.

    Raises:
        InputError: A file cannot be read.
    """
    return {words for path in paths for file in files_below(path) for words in texts_in(file)}


def texts_in(file: Path) -> set[str]:
    """Return all texts in a file, as words.

    Raises:
        InputError: It cannot be read.
    """
    return {as_words(text) for text in _cells(file)} - {""}


def is_any_known(texts: Iterable[str], known: Set[str]) -> bool:
    """Return whether one of some texts is among those that `texts_below` found; short ones are not looked for."""
    return any(words in known and is_looked_for(words) for words in map(as_words, texts))


def is_looked_for(words: str) -> bool:
    """Return whether a text, as words, has enough of them; a Chinese, Japanese or Thai character counts as one."""
    return num_words(words) >= LEAST_WORDS


def as_words(text: str) -> str:
    """Return the words of a text: no capital letters, no punctuation, one blank between two."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).lower()))


def files_below(path: Path) -> list[Path]:
    """Return the files below a folder, in their order; of a file itself."""
    return [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]


def _cells(file: Path) -> Iterator[str]:
    """Yield whatever may be a text in a file: values of JSON and Parquet, cells of a table, whole lines."""
    if format_of(file) in ("jsonl", "parquet", "tmx"):
        for _, record in read_records(file):
            yield from _strings(record)
        return
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise unreadable(file, error) from error
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    if file.suffix.lower() == ".json":
        try:
            yield from _strings(parse_json(text))
        except ValueError as error:
            raise InputError(f"{file}: is not JSON ({error}). Mend or remove it.") from error
        return
    if format_of(file) == "csv":
        with contextlib.suppress(csv.Error):  # the lines below are looked at in any case
            for cells in csv.reader(io.StringIO(text, newline="")):
                yield from cells
    for line in text.splitlines():  # files have other endings than content: tabs in .csv, tables in .txt
        yield from line.split("\t")
        yield _LABEL.sub("", line, count=1)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
