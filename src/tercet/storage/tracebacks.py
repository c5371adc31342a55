"""Tracebacks of errors that nobody foresaw: kept in a file, so that the screen shows one line."""

import os
import tempfile
import time
import traceback
from pathlib import Path

from tercet.storage.user_cache import cache_folder

_NUM_KEPT = 20


def keep_traceback(error: BaseException) -> Path | None:
    """Write an error's traceback into the user's cache, or else the temporary folder; return where, or None."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    lines = "".join(traceback.format_exception(error, limit=-50))
    for folder in (cache_folder() / "tracebacks", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(lines, encoding="utf-8", errors="replace")
            for old in (
                sorted(folder.glob("[0-9]*-[0-9]*-[0-9]*.txt"))[:-_NUM_KEPT] if folder.name == "tracebacks" else ()
            ):
                old.unlink(missing_ok=True)
        except OSError:
            continue
        return folder / name
    return None
