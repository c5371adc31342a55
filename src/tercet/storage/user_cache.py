"""The user's cache: folders that are made once and kept for the next time."""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tercet.errors import OutputError
from tercet.storage.files import atomic_folder

logger = logging.getLogger("tercet")


def cached_folder(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder; where it is not there, make it and keep it.

    Where it cannot be kept, a warning says so, and a temporary one lasts until Python ends.

    Args:
        folder: Where it is kept, under a name that says all that decides it.
        make: Fills an empty folder.
    """
    if not folder.is_dir():
        try:
            with atomic_folder(folder) as temporary:
                make(temporary)
        except OutputError as error:
            logger.warning("a folder is not kept for the next time: %s", error)
            folder = Path(tempfile.mkdtemp(prefix="tercet-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            make(folder)
    return folder


def cache_folder() -> Path:
    """Return where things are kept: `$XDG_CACHE_HOME/tercet`, or `~/.cache/tercet`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tercet"
