"""Hashes beside what is kept: one format, the lines of `sha256sum`, for folders and for single files.

A folder that is written once has `SHA256SUMS`; a file that is written alone has `NAME.sha256` beside it. Either is
written last, so a missing one is no error (a kill came before it, or an older version wrote the file); a wrong one is.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from tercet.errors import TercetError
from tercet.storage.files import atomic_write, target_errors
from tercet.storage.hashing import sha256_of_file

MANIFEST = "SHA256SUMS"
"""The manifest of a folder: every file below it when it was written, but those with one of their own."""

ENDING = ".sha256"
"""What the manifest of one file is called after its name."""

_LINE = re.compile(r"([0-9a-f]{64})  (\S(?:.*\S)?)")

Hashes = dict[str, str]
"""The SHA-256 of each file by its name relative to the manifest."""


def manifest_of(file: Path) -> Path:
    """Return where the hash of a single file is kept."""
    return file.with_name(file.name + ENDING)


def write_manifest(folder: Path, *, of: Callable[[Path], bool] = lambda _file: True) -> None:
    """Write the hashes of the files below a folder, or of those that `of` chooses."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_manifest(path) and of(path))
    _write(folder / MANIFEST, {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in found})


def write_hashes(folder: Path, hashes: Hashes) -> None:
    """Write hashes that are known as the manifest of a folder."""
    _write(folder / MANIFEST, hashes)


def record_file(file: Path) -> None:
    """Write the hash of a single file beside it."""
    _write(manifest_of(file), {file.name: sha256_of_file(file)})


@contextlib.contextmanager
def recorded_write(file: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Do as `atomic_write`, and write the file's hash beside it. The old hash goes before the new file comes."""
    with atomic_write(file, mode, before=lambda: forget(file)) as stream:
        yield stream
    record_file(file)


def forget(file: Path) -> None:
    """Remove the hash of a single file, before the file itself is changed or removed."""
    with target_errors(file):
        manifest_of(file).unlink(missing_ok=True)


def read_manifest(manifest: Path) -> Hashes:
    """Return what a manifest says.

    Raises:
        ValueError: It is damaged.
        OSError: It cannot be read.
    """
    try:
        lines = manifest.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start}") from error
    found = [_LINE.fullmatch(line) for line in lines]
    if not found or not all(found):
        raise ValueError("is damaged itself")
    return {match[2]: match[1] for match in found if match}


def damage_of(manifest: Path, *, of: Callable[[Path], bool] = lambda _file: True) -> Iterator[tuple[Path, str]]:
    """Yield each file that is not as a manifest says, or the manifest itself, and what is wrong with it.

    Args:
        manifest: A manifest that is there.
        of: Which of its files are looked at.
    """
    try:
        hashes = read_manifest(manifest)
    except (ValueError, OSError) as error:
        yield manifest, getattr(error, "strerror", None) or str(error)
        return
    for name, expected in hashes.items():
        file = Path(os.path.normpath(manifest.parent / name))  # in a folder of its own, it names files beside that
        if of(file) and (problem := _problem_of(file, expected)):
            yield file, problem


def is_whole(file: Path) -> bool:
    """Return whether a single file is as its manifest says; true where it has none."""
    manifest = manifest_of(file)
    return not manifest.exists() or not any(damage_of(manifest))


def check_manifest(folder: Path, *, of: Callable[[Path], bool], raised: type[TercetError], fix: str) -> None:
    """Raise an error if a file of a folder is not as the folder's manifest says; nothing where it has none.

    Args:
        folder: The folder.
        of: Which of its files are looked at.
        raised: The error.
        fix: What to do about it, as a sentence.
    """
    manifest = folder / MANIFEST
    if manifest.exists():
        for file, problem in damage_of(manifest, of=of):
            raise raised(f"{file}: {problem}. {fix}")


def _problem_of(file: Path, expected: str) -> str:
    try:
        return "" if sha256_of_file(file) == expected else "is not as it was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _is_manifest(path: Path) -> bool:
    return path.name == MANIFEST or path.name.endswith(ENDING) or manifest_of(path).exists()


def _write(manifest: Path, hashes: Hashes) -> None:
    with atomic_write(manifest, "w") as stream:
        stream.writelines(f"{digest}  {name}\n" for name, digest in hashes.items())
