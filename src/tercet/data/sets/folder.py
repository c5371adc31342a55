"""The folder with the evaluation data: where it is; what is read from it is remembered with its hash."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tercet.errors import InputError, RowError, SettingError
from tercet.storage.hashing import sha256_of_file


def named_data_root(data: str | Path | None) -> Path:
    """Return the folder that was named, or `$TERCET_DATA/eval`; it may not be there yet.

    Raises:
        SettingError: Neither is given.
    """
    if data is not None:
        return Path(data)
    if "TERCET_DATA" not in os.environ:
        raise SettingError("no data folder was given. Name one with --data, or set TERCET_DATA.")
    return Path(os.environ["TERCET_DATA"]) / "eval"


def data_root(data: str | Path | None, *, needed: bool = True) -> Path:
    """Return the folder with the evaluation data.

    Args:
        data: The folder; `$TERCET_DATA/eval` where None.
        needed: Whether anything is read from it; else none has to be named.

    Raises:
        InputError: The folder that was named is not there.
        SettingError: It is needed, and none was named.
    """
    if data is not None and not Path(data).is_dir():
        raise InputError(f"{data}: no such folder. Name the folder with the evaluation data.")
    if not needed and data is None and "TERCET_DATA" not in os.environ:
        return Path()
    return named_data_root(data)


class MissingDataError(InputError):
    """A task's data is not in the data folder."""


@dataclass
class DataFolder:
    """A folder of evaluation data.

    Attributes:
        root: The folder.
        read: The files read so far and their SHA-256.
    """

    root: Path
    read: dict[str, str] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Return the path of a file, and remember its hash.

        Raises:
            MissingDataError: There is no such file.
        """
        path = self.root / name
        if not path.is_file():
            raise MissingDataError(f"{name}: not in {self.root}. Put the file there, or leave the task out.")
        if name not in self.read:
            self.read[name] = sha256_of_file(path)
        return path

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return (self.root / name).is_file()

    def lines(self, name: str, *, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
        """Yield `file:line` and the line, without its line end; a byte order mark is dropped.

        Raises:
            MissingDataError: There is no such file.
            RowError: A line is not in the encoding.
        """
        with self.path(name).open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                try:
                    line = raw.decode(encoding)
                except UnicodeDecodeError as error:
                    raise RowError(f"{name}:{number}: is not {encoding}. Fetch the file again.") from error
                if "\0" in line:
                    raise RowError(f"{name}:{number}: has a NUL byte, so it is no text. Fetch the file again.")
                yield f"{name}:{number}", line.lstrip("\ufeff").rstrip("\r\n")

    def columns(self, name: str, num: int | None = None, *, encoding: str = "utf-8") -> Iterator[tuple[str, list[str]]]:
        """Yield `file:line` and the tab-separated columns of each line.

        Args:
            name: The file.
            num: How many columns a line has at the least; as many as the first line has where None.
            encoding: The file's encoding.

        Raises:
            RowError: A line has fewer columns.
        """
        for where, line in self.lines(name, encoding=encoding):
            columns = line.split("\t")
            if num is None:
                num = len(columns)
            if len(columns) < num:
                raise RowError(f"{where}: has {len(columns)} columns, not {num}. Fetch the file again.")
            yield where, columns


def number(text: str, where: str, *, low: float, high: float) -> float:
    """Read a score.

    Raises:
        RowError: It is no number, or is out of its range.
    """
    try:
        value = float(text)
    except ValueError as error:
        raise RowError(f"{where}: the score {text!r} is no number. Fix the row.") from error
    if not low <= value <= high:
        raise RowError(f"{where}: the score {text} is not in {low:g} to {high:g}. Fix the row.")
    return value
