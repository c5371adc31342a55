"""An adaptation's folder: what is in it, and by what it is known."""

from contextlib import AbstractContextManager
from pathlib import Path

from tercet.storage.files import is_temporary
from tercet.training.runs import LOCK, locked

RUN, LABELS = "run", "labels"
"""Folders in it: of the run that trains, and of the rows that somebody labelled."""

RECORD, REPORTS = "adapt.json", ("report.md", "report.html")


def locked_adaptation(folder: Path) -> AbstractContextManager[None]:
    """Make an adaptation's folder where there is none, and keep others out of it while the block runs.

    Raises:
        OutputError: The folder cannot be made, holds something else, or another command works in it.
    """
    return locked(folder, is_own=_is_adaptation)


def _is_adaptation(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir() if not is_temporary(path.name)}
    return RECORD in names or {LOCK} <= names <= {LOCK, LABELS}
