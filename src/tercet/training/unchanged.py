"""Whether what a stage reads is as it was, by sizes and times alone, so that a finished stage reads nothing again."""

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tercet.data.reading.datasets import HUB
from tercet.encoder.folder.names import find_folder
from tercet.errors import TercetError
from tercet.storage.hashing import sha256_of_json
from tercet.training.stages.stage import Asked

_MAX_FILES = 10_000

_COMMIT = re.compile(r"[0-9a-f]{40}")


def look(settings: dict[str, Any], made_by: Sequence[str], asked: Sequence[Asked]) -> dict[str, Any] | None:
    """Return how everything that a stage reads looks from outside; None where that does not tell whether it changed.

    Args:
        settings: The stage's kind and settings. Every text among them that names a file or folder is looked at.
        made_by: The keys of the earlier stages.
        asked: The models that it uses.
    """
    if any(_COMMIT.fullmatch(str(revision)) is None for revision in _datasets(settings)):
        return None
    try:
        folders = [find_folder(name, revision=rev, weights=weights, pickles=old) for name, rev, weights, old in asked]
        files = dict(_files([*map(Path, _texts(settings)), *folders]))
    except (TercetError, OSError, RuntimeError, ValueError):
        return None
    if len(files) > _MAX_FILES:
        return None
    decides = {"version": version("tercet"), "settings": settings, "made_by": [*made_by], "files": files}
    return {"models": [[*each] for each in asked], "sha256": sha256_of_json(decides)}


def _datasets(value: Any) -> Iterator[Any]:
    """Yield the revision of each dataset of the hub; what is streamed or not pinned may change at any time."""
    if isinstance(value, dict):
        if str(value.get("path", "")).startswith(HUB):
            yield None if value.get("stream") else value.get("revision")
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from _datasets(inner)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in settings, and the parts of those that name several files: `scored:FILE,scored:FILE`."""
    if isinstance(value, str):
        parts = value.split(",")
        yield from {value, *parts, *(part.partition(":")[2] for part in parts)}
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _files(places: Sequence[Path]) -> Iterator[tuple[str, list[int]]]:
    """Yield each file at or below some places, with numbers that change when it does."""
    num = 0
    for place in places:
        if not place.name or len(str(place)) > 4096 or len(place.name) > 255 or not place.expanduser().exists():
            continue
        found = place.expanduser()
        for file in found.rglob("*") if found.is_dir() else [found]:
            about = file.stat()
            yield str(file), [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino]
            num += 1
            if num > _MAX_FILES:
                return
