"""Files that are either whole or not there: atomic writes and fsync, and JSON."""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

from tercet.errors import InputError, OutputError, TercetError

_TEMPORARY = re.compile(r"\.(.+)\.[a-z0-9_]{8}")  # as tempfile makes them, beside what they become


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; when the block ends well it is synced and renamed to `path`.

    When the block fails, the temporary file is removed and `path` is as it was before.
    """
    encoding = None if "b" in mode else "utf-8"
    with target_errors(path), _temporary(path) as temporary:
        with temporary.open(mode, encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `path` when the block ends well, and vanishes when it does not."""
    with target_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        temporary.chmod(0o777 & ~_umask())
        try:
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    file.chmod(0o666 & ~_umask())  # some libraries write files that only their owner can read
                    with file.open("r+b") as stream:  # Windows syncs only what may be written
                        os.fsync(stream.fileno())
            if path.exists():
                with tempfile.TemporaryDirectory(prefix=f".{path.name}.old.", dir=path.parent) as old:
                    path.replace(Path(old) / path.name)
                    try:
                        temporary.replace(path)
                    except OSError:
                        (Path(old) / path.name).replace(path)
                        raise
            else:
                temporary.replace(path)
            _sync_folder(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where it is not there; raise OutputError where it cannot be made."""
    with target_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def move_file(path: Path, target: Path) -> None:
    """Rename a file to `target`, in place of what was there, and sync the folder."""
    with target_errors(target):
        path.replace(target)
        _sync_folder(target.parent)


def remove_temporaries(folder: Path, *, of: Collection[str] | None = None) -> None:
    """Remove what a kill left half-written in a folder.

    Args:
        folder: The folder.
        of: What was to be written, by name; anything where None, for folders where nobody else keeps files.
    """
    with target_errors(folder):
        for path in folder.glob(".*"):
            match = _TEMPORARY.fullmatch(path.name)
            if match and (of is None or match[1] in of):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def read_json(path: Path, *, raised: type[TercetError] = InputError, fix: str = "Check the file.") -> Any:
    """Return what a JSON file holds.

    Args:
        path: The file.
        raised: The error where it cannot be read.
        fix: What to do about it, as a sentence.

    Raises:
        TercetError: The file is not there, cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise raised(f"{path}: there is no such file. {fix}") from error
    except OSError as error:
        raise raised(f"{path}: cannot be read ({error.strerror}). {fix}") from error
    except (ValueError, RecursionError) as error:
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
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    temporary.chmod(0o666 & ~_umask())
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


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
