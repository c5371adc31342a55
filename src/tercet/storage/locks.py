"""Locks between processes, on every system: a file that one process holds, with its name in it."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tercet.errors import OutputError
from tercet.storage.files import remove_temporaries, target_errors
from tercet.storage.manifest import ENDING

_MAX_BYTES = 500


@contextmanager
def hold(file: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock while the block runs. The system releases it when the process ends, however it ends.

    Args:
        file: Stands for the lock, in the folder that is locked. It is made where there is none, and stays.
        wait: Whether to wait for another process that holds it.

    Raises:
        OutputError: The file cannot be made, or another process holds it and `wait` is off; the message says who.
    """
    with _held(file, what=file.parent, wait=wait):
        yield


@contextmanager
def hold_target(target: Path) -> Iterator[None]:
    """Keep other commands from writing a file or folder while the block runs: by a hidden file beside it, which goes.

    Raises:
        OutputError: Another process writes it; the message says who. Or nothing can be written there.
    """
    file = target.parent / f".{target.name}.lock"
    with _held(file, what=target, wait=False):
        remove_temporaries(target.parent, of=(target.name, target.name + ENDING))  # of a command that was killed
        try:
            yield
        finally:
            with contextlib.suppress(
                OSError
            ):  # while it is held: who waits for it finds that it is gone, and makes one
                file.unlink()


@contextmanager
def _held(file: Path, *, what: Path, wait: bool) -> Iterator[None]:
    with target_errors(file):
        try:
            held = FileLock(file, blocking=wait, preserve_lock_file=True).acquire()
        except Timeout as error:
            raise OutputError(f"{what}: another run is going on here{_holder(file)}. Wait, or name another.") from error
    with held:
        with contextlib.suppress(OSError):  # it is locked, whether or not it says by whom
            command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
            said = f"process {os.getpid()} ({command}) since {time.strftime('%Y-%m-%d %H:%M:%S')}"
            file.write_text(said, encoding="utf-8")
        yield


def _holder(file: Path) -> str:
    """Return what the process that holds a lock has written about itself."""
    with contextlib.suppress(OSError, UnicodeDecodeError), file.open("rb") as stream:
        said = stream.read(_MAX_BYTES).decode()
        if said.startswith("process ") and said.isprintable():
            return f": {said}"
    return ""
