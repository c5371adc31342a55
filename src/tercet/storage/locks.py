"""Locks between processes, on every system: a file that one process holds, and that stays when it is released."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tercet.errors import OutputError
from tercet.storage.files import target_errors


@contextmanager
def hold(file: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock while the block runs. The system releases it when the process ends, however it ends.

    Args:
        file: Stands for the lock, in the folder that is locked. It is made where there is none, and stays.
        wait: Whether to wait for another process that holds it.

    Raises:
        OutputError: The file cannot be made, or another process holds it and `wait` is off.
    """
    with target_errors(file):
        try:
            held = FileLock(file, blocking=wait, preserve_lock_file=True).acquire()
        except Timeout as error:
            raise OutputError(f"{file.parent}: another run is going on here. Wait, or name another folder.") from error
    with held:
        yield
