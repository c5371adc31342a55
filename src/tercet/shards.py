"""Long work in fixed shards: a renamed file is the record that one is done, so a killed run goes on where it was."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from tercet.files import sha256_of_json, write_json

logger = logging.getLogger("tercet")


class Shards:
    """The finished shards of one piece of work, in a folder of their own.

    Args:
        folder: Where the shards are kept until the work is done.
        plan: Everything that decides what the shards hold. Shards of another plan are thrown away.
        ending: What a shard's file is called after its number.
    """

    def __init__(self, folder: Path, *, plan: dict[str, object], ending: str) -> None:
        self.folder = folder
        self.ending = ending
        marker = folder / f"{sha256_of_json(plan)}.json"
        if folder.exists() and not marker.exists():
            logger.warning("%s holds the start of other work, which is thrown away", folder)
            shutil.rmtree(folder)
        folder.mkdir(exist_ok=True)
        if not marker.exists():
            write_json(marker, plan)

    def path(self, number: int) -> Path:
        """Return the file of a shard; it exists when, and only when, the shard is done."""
        return self.folder / f"{number:06d}{self.ending}"

    def is_done(self, number: int) -> bool:
        """Return whether a shard is done."""
        return self.path(number).exists()

    def remove(self) -> None:
        """Remove all shards: the work is done."""
        shutil.rmtree(self.folder)


def in_shards(rows: Iterator[str], size: int) -> Iterator[list[str]]:
    """Yield rows in lists of a fixed size, the last one shorter."""
    shard: list[str] = []
    for row in rows:
        shard.append(row)
        if len(shard) == size:
            yield shard
            shard = []
    if shard:
        yield shard
