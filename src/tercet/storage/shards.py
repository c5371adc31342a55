"""Long work in fixed shards: a renamed file is the record that one is done, so a killed run goes on where it was.

Its hash stands beside it, and a shard that is not as it was written counts as one that is not done.
"""

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from tercet.errors import OutputError
from tercet.storage.files import is_temporary, remove_temporaries, target_errors, write_json
from tercet.storage.hashing import sha256_of_json
from tercet.storage.manifest import forget, is_whole, manifest_of, record_file

_T = TypeVar("_T")

logger = logging.getLogger("tercet")


class Shards:
    """The finished shards of one piece of work, in a folder of their own.

    Args:
        folder: Where the shards are kept until the work is done.
        plan: Everything that decides what the shards hold. Shards of another plan are of no use.
        ending: What a shard's file is called after its number.
        replace: Whether shards of another plan are thrown away, or are an error.

    Raises:
        OutputError: The folder cannot be made, or is there and holds something else.
    """

    def __init__(self, folder: Path, *, plan: dict[str, object], ending: str, replace: bool = True) -> None:
        self.folder = folder
        self.ending = ending
        self._removed = folder.with_name(f".{folder.name}.removed")
        marker = folder / f"{sha256_of_json(plan)}.json"
        with target_errors(folder):
            shutil.rmtree(self._removed, ignore_errors=True)
            if folder.exists():
                _check_ours(folder)
                remove_temporaries(folder)
                if not marker.exists() and any(folder.iterdir()):
                    if not replace:
                        raise OutputError(
                            f"{folder}: holds what other inputs or settings made. Name another target, or remove it."
                        )
                    logger.warning("%s holds the start of other work, which is thrown away", folder)
                    self.remove()
            folder.mkdir(exist_ok=True)
        if not marker.exists():
            try:
                write_json(marker, plan)
            except OutputError:
                self.remove()
                raise

    def path(self, number: int) -> Path:
        """Return the file of a shard; it exists when, and only when, the shard is done."""
        return self.folder / f"{number:06d}{self.ending}"

    def is_done(self, number: int) -> bool:
        """Return whether a shard is done and as it was written; a damaged one is removed, and a warning names it."""
        path = self.path(number)
        if not path.exists():
            return False
        if is_whole(path):
            if not manifest_of(path).exists():  # a kill came between the two
                record_file(path)
            return True
        self.reject(number, "it is not as it was written")
        return False

    def finish(self, number: int) -> None:
        """Write the hash of a shard beside it."""
        record_file(self.path(number))

    def reject(self, number: int, problem: str) -> None:
        """Remove a shard that cannot be used, so that it is made again."""
        path = self.path(number)
        logger.warning("%s: %s, so it is made again", path, problem)
        with target_errors(path):
            forget(path)
            path.unlink(missing_ok=True)

    def any_done(self) -> bool:
        """Return whether there is a finished shard."""
        return any(self.folder.glob(f"*{self.ending}"))

    def remove(self) -> None:
        """Remove all shards at once: killed meanwhile, all of them are there or none."""
        with target_errors(self.folder):
            self.folder.replace(self._removed)
            shutil.rmtree(self._removed)


def _check_ours(folder: Path) -> None:
    """Check that a folder is empty or has a marker; of the first one, a kill may have left a temporary file alone."""
    names = [path.name for path in folder.iterdir()]
    is_ours = any(re.fullmatch(r"[0-9a-f]{64}\.json", name) for name in names) or all(map(is_temporary, names))
    if folder.is_symlink() or not is_ours:
        raise OutputError(f"{folder}: is in the way, and not Tercet's. Move it or name another target.")


def in_shards(rows: Iterator[_T], size: int) -> Iterator[list[_T]]:
    """Yield rows in lists of a fixed size, the last one shorter."""
    shard: list[_T] = []
    for row in rows:
        shard.append(row)
        if len(shard) == size:
            yield shard
            shard = []
    if shard:
        yield shard
