"""Hashes of files, JSON and texts."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path


def sha256_of_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_of_folder(path: Path, *, of: Callable[[Path], bool] | None = None) -> str:
    """Return one SHA-256 over the names and contents of all files below `path`, or of those that `of` chooses."""
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file() and (of is None or of(p))):
        digest.update(f"{file.relative_to(path).as_posix()}\0{sha256_of_file(file)}\n".encode())
    return digest.hexdigest()


def sha256_of_path(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files in a folder."""
    return sha256_of_folder(path) if path.is_dir() else sha256_of_file(path)


def sha256_of_json(value: object) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def text_digest(text: str, *, num_bytes: int = 16) -> bytes:
    """Return a hash of a text; 16 bytes tell any number of texts apart, 8 bytes some million."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=num_bytes).digest()


def text_key(text: str) -> int:
    """Return 64 bits that stand for a text: the same in every process, run and machine."""
    return int.from_bytes(text_digest(text, num_bytes=8), "big", signed=True)


def text_place(text: str) -> float:
    """Return a number from 0 to below 1 that a text is known by: what splits texts, the same way everywhere."""
    return (int.from_bytes(text_digest(text, num_bytes=8), "big") >> 11) / 2**53


class TextsDigest:
    """One SHA-256 over texts in their order, whatever file they are in."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, text: str) -> None:
        """Add the next text."""
        self._digest.update(f"{len(text)}\0{text}".encode("utf-8", "surrogatepass"))

    def hexdigest(self) -> str:
        """Return the hash of all texts so far."""
        return self._digest.hexdigest()
