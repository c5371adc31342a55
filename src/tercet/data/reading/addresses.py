"""Where a file is: on this machine, or at an address that fsspec opens, such as s3://bucket/file.jsonl."""

import glob
import os
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeAlias

from tercet.data.reading.datasets import HUB
from tercet.errors import InputError

_PROTOCOL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_SECRET = re.compile(r"(://)[^/@]*@")


class Address:
    """A file that fsspec opens, with as much of a Path as the readers use.

    Args:
        url: Its address, with the protocol.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __str__(self) -> str:
        return _SECRET.sub(r"\1", self.url)  # a name and password before the host are nobody's business

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and other.url == self.url

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def name(self) -> str:
        """What stands after the last slash."""
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of its name."""
        return Path(self.name).suffix

    @cached_property
    def _place(self) -> tuple[Any, str]:
        import fsspec

        try:
            file_system, path = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:  # no such protocol, or its package is not installed
            raise InputError(f"{self}: cannot be opened ({error}). Install what fsspec needs for it.") from error
        return file_system, path

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open it for reading; only what is read comes over the network.

        Raises:
            OSError: The other side did not give it.
        """
        file_system, path = self._place
        try:
            stream: IO[bytes] = file_system.open(path, mode)
        except OSError:
            raise
        except Exception as error:  # each file system has errors of its own
            raise OSError(str(error) or type(error).__name__) from error
        return stream

    def is_file(self) -> bool:
        """Return whether it is there."""
        file_system, path = self._place
        return bool(file_system.isfile(path))

    def state(self) -> str:
        """Return what changes when the file does."""
        file_system, path = self._place
        return str(file_system.ukey(path))

    def matches(self) -> list["Address"]:
        """Return the addresses that match this one as a pattern."""
        file_system, path = self._place
        return [Address(file_system.unstrip_protocol(found)) for found in sorted(file_system.glob(path))]


Place: TypeAlias = Path | Address


def place_of(name: str | Path) -> Place:
    """Return where a file is that a user named."""
    text = str(name)
    if not isinstance(name, str) or not _PROTOCOL.match(text):
        return Path(name)
    return Path(text.removeprefix("file://")) if text.startswith("file://") else Address(text)


def state_of(place: Place, stream: IO[bytes] | None = None) -> str:
    """Return what changes when a file does: its size and time.

    Args:
        place: The file.
        stream: The open file, where it is open: another one may have its name by now.
    """
    if isinstance(place, Address):
        return place.state()
    stat = place.stat() if stream is None else os.fstat(stream.fileno())
    return f"{stat.st_size} {stat.st_mtime_ns}"


def expand(names: Iterable[str | Path]) -> list[str]:
    """Return the files that names stand for: a pattern is all that match it, in the order of their names.

    Raises:
        InputError: Nothing matches a pattern, or a name is that of a folder.
    """
    found: list[str] = []
    for name in names:
        text = str(name)
        place = None if text.startswith(HUB) else place_of(name)
        if place is None or not glob.has_magic(text) or (isinstance(place, Path) and place.exists()):
            if isinstance(place, Path) and place.is_dir():
                raise InputError(f"{place}: is a folder. Name its files, such as '{place}/*.jsonl'.")
            found.append(text)
            continue
        if isinstance(place, Address):
            matching = [each.url for each in place.matches()]
        else:
            found_here = glob.glob(str(place), recursive=True)  # noqa: PTH207 - a Path's takes no absolute pattern
            matching = sorted(each for each in found_here if Path(each).is_file())
        if not matching:
            raise InputError(f"{place}: matches no file. Check the pattern.")
        found += matching
    return found
