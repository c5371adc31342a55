"""Texts as a user gives them: a list, a file, or standard input."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tercet.data.reading.addresses import expand
from tercet.data.reading.datasets import HUB
from tercet.data.rows.texts import TextFile, TextFiles, readable_twice
from tercet.errors import InputError
from tercet.storage.files import atomic_write, make_folder
from tercet.storage.hashing import TextsDigest
from tercet.storage.texts import check_texts, list_of_texts
from tercet.storage.user_cache import cache_folder

GivenTexts: TypeAlias = str | Path | Sequence[str] | Sequence[Path] | TextFile | TextFiles
"""A list of strings is texts; one of Paths is files and patterns. A string is a file, or `-` for standard input."""


@dataclass(frozen=True)
class TextList:
    """Texts in memory, with what is known about the texts of a file."""

    texts: Sequence[str]
    path: None = None

    @property
    def num_texts(self) -> int:
        """How many texts there are."""
        return len(self.texts)

    @property
    def sha256(self) -> str:
        """The hash of all texts."""
        digest = TextsDigest()
        for text in self.texts:
            digest.add(text)
        return digest.hexdigest()

    @property
    def files(self) -> tuple[TextFile, ...]:
        """The files that the texts stand in: none."""
        return ()

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


def given_files(texts: str | Path | Sequence[str | Path]) -> list[str]:
    """Return texts as files that a recipe can name.

    Args:
        texts: A list of strings is texts, which are kept in the user's cache under their hash, so that a later call
            with the same texts finds the same file. A string is a file or a dataset (`hub:ID`), and so is a Path.

    Raises:
        InputError: A list of strings begins with the name of a file.
    """
    if isinstance(texts, str | Path):
        return [str(texts)]
    given = list_of_texts(texts)
    if given and all(isinstance(text, Path) or str(text).startswith(HUB) for text in given):
        return [str(path) for path in given]
    check_texts(given)
    own = TextList(given)
    if own.num_texts and _is_file(own.texts[0]):
        raise InputError(f"{own.texts[0]}: is a file, and a list of strings is texts. Give a list of Paths for files.")
    file = cache_folder() / "texts" / f"{own.sha256}.jsonl"
    if not file.exists():
        make_folder(file.parent)
        with atomic_write(file, "w") as stream:
            stream.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in own)
    return [str(file)]


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


@contextlib.contextmanager
def open_given(
    texts: "GivenTexts", *, column: str | None = None, file_format: str | None = None
) -> Iterator[TextFile | TextFiles | TextList]:
    """Open texts; a file is checked from end to end, and what can be read only once is copied for a while.

    Args:
        texts: A list of texts, a file, or a list of Paths of files and patterns, which are as one file.
        column: Which column of the file holds the text.
        file_format: How the file is written, where its ending does not tell.

    Raises:
        InputError: The file is missing, empty or unreadable.
        RowError: A row is broken or has no text; the message says file:line.
    """
    if isinstance(texts, TextFile | TextFiles):
        yield texts
    elif isinstance(texts, str | Path):
        if " " in str(texts) and not _is_file(str(texts)):
            raise InputError(f"{texts}: no such file. A string is the name of a file; for texts give a list: [text].")
        with readable_twice(str(texts)) as path:
            yield TextFile.open(path, column=column, file_format=file_format)
    else:
        given: list[Any] = list_of_texts(texts)
        if given and all(isinstance(each, Path) for each in given):
            with contextlib.ExitStack() as stack:
                paths = [stack.enter_context(readable_twice(name)) for name in expand(given)]
                files = [TextFile.open(path, column=column, file_format=file_format) for path in paths]
                yield files[0] if len(files) == 1 else TextFiles(tuple(files))
            return
        check_texts(given)
        yield TextList(given)
