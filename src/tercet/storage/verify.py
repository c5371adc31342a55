"""The verb `verify`: is everything in a folder, or a file, as it was written?"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tercet.errors import InputError, TercetError
from tercet.storage.files import is_temporary, read_json
from tercet.storage.hashing import sha256_of_file, sha256_of_json
from tercet.storage.manifest import ENDING, MANIFEST, damage_of, manifest_of, read_manifest

_EARLIER = "manifest.json"
_PLAN = re.compile(r"[0-9a-f]{64}\.json")
"""Named after the hash of what it holds."""


@dataclass(frozen=True, repr=False)
class Verification:
    """What `verify` found."""

    path: Path
    num_files: int
    """How many files were compared with their hashes."""
    damaged: dict[str, str]
    """What is wrong with each damaged file, by its path."""
    unfinished: tuple[str, ...] = ()
    """What a kill left half-written; the next start of the command that wrote it removes it."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as JSON."""
        return {
            "path": str(self.path),
            "num_files": self.num_files,
            "damaged": self.damaged,
            "unfinished": [*self.unfinished],
        }

    def __repr__(self) -> str:
        lines = [f"{self.path}: {self.num_files:,} files compared with their hashes, {len(self.damaged):,} damaged"]
        lines += [f"{file}: {problem}" for file, problem in self.damaged.items()]
        return "\n".join([*lines, *(f"{file}: was not finished" for file in self.unfinished)])


def verify(path: str | Path) -> Verification:
    """Compare a model folder, a run, a corpus, vectors, or a folder with several of them, with their hashes.

    Args:
        path: A folder, or a file that has its hash beside it.

    Raises:
        InputError: There is no such path, or nothing there has a hash: another program wrote it, or an earlier version.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder. Name what Tercet wrote.")
    found = [manifest_of(path)] if not path.is_dir() else sorted(each for each in path.rglob("*") if _is_checked(each))
    num_files, damaged = 0, dict[str, str]()
    for file in found:
        if file.exists():
            num, bad = _check(file)
            num_files += num
            damaged |= {str(each): problem for each, problem in bad.items()}
    if not num_files and not damaged:
        raise InputError(f"{path}: has no hashes to compare it with. Name what this version of Tercet has written.")
    left = sorted(str(each) for each in path.rglob(".*") if is_temporary(each.name)) if path.is_dir() else []
    return Verification(path, num_files, damaged, tuple(left))


def _is_checked(path: Path) -> bool:
    if path.name == _EARLIER:
        return path.parent.name.startswith("step-")
    return path.name == MANIFEST or path.name.endswith(ENDING) or bool(_PLAN.fullmatch(path.name))


def _check(file: Path) -> tuple[int, dict[Path, str]]:
    """Return how many files a manifest names, and what is wrong with those that are damaged."""
    if _PLAN.fullmatch(file.name):
        try:
            is_whole = sha256_of_json(read_json(file)) == file.stem
        except TercetError:
            is_whole = False
        return 1, {} if is_whole else {file: "is not as it was written"}
    if file.name == _EARLIER:
        return _check_earlier(file)
    bad = dict(damage_of(file))
    return (0 if file in bad else len(read_manifest(file))), bad


def _check_earlier(file: Path) -> tuple[int, dict[Path, str]]:
    """Check a checkpoint of an earlier version, whose manifest is JSON."""
    try:
        hashes: dict[str, str] = read_json(file, kind=dict)
    except TercetError:
        return 0, {file: "is damaged itself"}
    files = {file.parent / name: digest for name, digest in hashes.items()}
    bad = {each: "is not as it was written" for each, digest in files.items() if not _is(each, digest)}
    return len(files), bad


def _is(file: Path, digest: str) -> bool:
    return file.is_file() and sha256_of_file(file) == digest
