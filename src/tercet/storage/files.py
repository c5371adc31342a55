"""Files that are either whole or not there: atomic writes and fsync, and JSON."""

import contextlib
import glob
import json
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any

from tercet.errors import InputError, OutputError, TercetError
from tercet.storage.documents import MAX_BYTES, parse_json, read_document

_ENDING = ".tercet"
_TEMPORARY = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.tercet")  # beside what they become; nobody else's files end like this
_REPLACED = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.replaced\.tercet")  # the folder that a new one replaces

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD; RENAME_EXCHANGE of Linux, and RENAME_SWAP of macOS

logger = logging.getLogger("tercet")


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "wb", *, before: Callable[[], None] | None = None) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; when the block ends well it is synced and renamed to `path`.

    When the block fails, the temporary file is removed and `path` is as it was before. A file that is replaced hands
    its permissions on; a link is replaced, not followed.

    Args:
        path: The file.
        mode: As `open` has it.
        before: What is done between the last byte and the renaming.
    """
    encoding = None if "b" in mode else "utf-8"
    with target_errors(path), _temporary(path) as temporary:
        with temporary.open(mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if before is not None:
            before()
        temporary.replace(path)
        _sync_folder(path.parent)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `path` when the block ends well, and vanishes when it does not.

    The two folders exchange their names at once, so that `path` is one of them whenever a kill comes. On a file system
    that cannot do that, `recover` puts the old one back.
    """
    with target_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        recover(path)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=_ENDING, dir=path.parent))
        temporary.chmod(_mode_of(path) or 0o777 & ~_umask())
        try:
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    file.chmod(0o666 & ~_umask())  # some libraries write files that only their owner can read
                    with file.open("r+b") as stream:  # Windows syncs only what may be written
                        os.fsync(stream.fileno())
            if not path.exists() or path.is_symlink():
                path.unlink(missing_ok=True)  # a link that nobody follows
                temporary.replace(path)
            elif not _exchange(temporary, path):
                _replace_in_two_steps(temporary, path)
            _sync_folder(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def recover(path: Path) -> None:
    """Put back the folder that a kill left under another name, just before a new one took its place."""
    if path.exists():
        return
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.replaced{_ENDING}"):
        match = _REPLACED.fullmatch(old.name)
        if match and match[1] == path.name:
            logger.warning("%s: a kill came while it was replaced; what was there before is back", path)
            old.replace(path)
            return


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where it is not there; raise OutputError where it cannot be made."""
    with target_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def move_file(path: Path, target: Path) -> None:
    """Rename a file to `target`, in place of what was there, and sync the folder."""
    with target_errors(target):
        mode = _mode_of(target)
        if mode is not None:
            path.chmod(mode)
        path.replace(target)
        _sync_folder(target.parent)


def remove_temporaries(folder: Path, *, of: Collection[str] | None = None) -> None:
    """Remove what a kill left half-written in a folder, and put back what it left without its name.

    Args:
        folder: The folder.
        of: What was to be written, by name; anything where None.
    """
    with target_errors(folder):
        for path in folder.glob(f".*{_ENDING}"):
            if (replaced := _REPLACED.fullmatch(path.name)) and (of is None or replaced[1] in of):
                recover(folder / replaced[1])
            match = replaced or _TEMPORARY.fullmatch(path.name)
            if match and (of is None or match[1] in of) and path.exists():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def is_temporary(name: str) -> bool:
    """Return whether a name is one of a file or folder that Tercet had not finished."""
    return _TEMPORARY.fullmatch(name) is not None


@contextlib.contextmanager
def append_to(path: Path) -> Iterator[IO[str]]:
    """Open a text file to add to its end; a link is refused, not followed.

    Raises:
        OutputError: It cannot be written.
    """
    with target_errors(path):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8") as stream:
            yield stream


def read_json(
    path: Path,
    *,
    kind: type | None = None,
    raised: type[TercetError] = InputError,
    fix: str = "Check the file.",
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Return what a JSON file holds: the one reader of JSON files.

    Args:
        path: The file.
        kind: What it has to hold (`dict`, `list`); anything where None.
        raised: The error where it cannot be read.
        fix: What to do about it, as a sentence.
        max_bytes: The most that is read.

    Raises:
        TercetError: The file is not there, is no file of data, or is not JSON that can be read: see `parse_json`.
    """
    try:
        return parse_json(read_document(path, max_bytes=max_bytes), kind=kind)
    except FileNotFoundError as error:
        raise raised(f"{path}: there is no such file. {fix}") from error
    except OSError as error:
        raise raised(f"{path}: cannot be read ({error.strerror or error}). {fix}") from error
    except ValueError as error:
        raise raised(f"{path}: is not JSON ({error}). {fix}") from error


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON, atomically."""
    with atomic_write(path, "w") as stream:
        json.dump(value, stream, indent=2, ensure_ascii=False)
        stream.write("\n")


def check_writable(path: Path) -> None:
    """Raise OutputError now if a file cannot be created at `path`, before any work is done."""
    with target_errors(path):
        if path.is_dir():
            raise OutputError(f"{path}: is a folder. Name a file.")
        tempfile.TemporaryFile(dir=path.parent).close()


@contextlib.contextmanager
def target_errors(path: Path) -> Iterator[None]:
    """Turn what the system says while `path` is written into an OutputError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"cannot write {path}: {reason}. Check the folder, its permissions and the disk.") from error


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_ENDING, dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    temporary.chmod(_mode_of(path) or 0o666 & ~_umask())
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _mode_of(path: Path) -> int | None:
    """Return the permissions of what is at a path; None where nothing is, or a link, which has none of its own."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return None if stat.S_ISLNK(found.st_mode) else stat.S_IMODE(found.st_mode)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths exchange their names at once, where the system can; return whether it did."""
    import ctypes

    library: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):
        return bool(library.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)
    if hasattr(library, "renamex_np"):
        return bool(library.renamex_np(*names, _EXCHANGE) == 0)
    return False


def _replace_in_two_steps(new: Path, path: Path) -> None:
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=f".replaced{_ENDING}", dir=path.parent))
    path.replace(old)
    try:
        new.replace(path)
    except OSError:
        old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
