"""A run's folder: one run at a time in it, the recipe, what it was made with, the log of all stages."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tercet.encoder.folder.card import CARD
from tercet.errors import InputError, OutputError
from tercet.storage.files import (
    append_to,
    atomic_folder,
    atomic_write,
    is_temporary,
    make_folder,
    read_json,
    remove_temporaries,
    target_errors,
)
from tercet.storage.hashing import sha256_of_folder
from tercet.storage.locks import hold
from tercet.storage.manifest import MANIFEST, write_manifest
from tercet.training.loggers import OnLog, open_logger

RECIPE, DESCRIPTION, METRICS, ENCODER = "recipe.yaml", "run.json", "metrics.jsonl", "encoder"

LOCK = ".lock"


@contextmanager
def locked(folder: Path, *, is_own: Callable[[Path], bool] | None = None) -> Iterator[None]:
    """Make a run's folder where there is none, and keep others out of it while the block runs.

    Args:
        folder: The folder.
        is_own: Whether a folder that is there may be used; `is_run` where None.

    Raises:
        OutputError: The folder cannot be made, holds something else, or another run is going on in it.
    """
    make_folder(folder)
    with target_errors(folder):
        if not (is_own or is_run)(folder) and any(folder.iterdir()):
            raise OutputError(f"{folder}: holds other files than a run. Name a new folder.")
    with hold(folder / LOCK):
        _sweep(folder)
        yield


def is_run(folder: Path) -> bool:
    """Return whether a folder is one that `train` wrote: it has a run's file, or only what comes before that."""
    names = {path.name for path in folder.iterdir() if not is_temporary(path.name)} if folder.is_dir() else set()
    return DESCRIPTION in names or {LOCK} <= names <= {LOCK, RECIPE}


def _sweep(folder: Path) -> None:
    """Remove what a kill left half-written; links are not followed."""
    (folder / MANIFEST).unlink(missing_ok=True)  # its files are written anew
    places = (folder, folder / "candidates", folder / "stages", folder / "kept")
    for path in (*places, *folder.glob("stages/*"), *folder.glob("teachers/*")):
        if not path.is_symlink():
            remove_temporaries(path)


def record_run(folder: Path) -> None:
    """Write the hashes of a run's own files when it is done; those of its stages and its encoder are with them."""
    own = {RECIPE, DESCRIPTION, METRICS, "results.json"}
    write_manifest(folder, of=lambda file: file.parent == folder and file.name in own)


def join_logs(folder: Path, stages: Sequence[Path]) -> None:
    """Write the log of a run anew: those of its stages, one after another."""
    with atomic_write(folder / METRICS) as target:
        for stage in stages:
            if (stage / METRICS).exists():
                target.write((stage / METRICS).read_bytes())


def log_to(folder: Path, name: str, stages: Sequence[Path], *, loggers: Sequence[str] = ()) -> OnLog:
    """Return the function that gets the lines of a stage's log, for the run's and for loggers that are wanted.

    With the first line the run's log is written anew, because a stage that goes on forgets lines after its checkpoint.

    Args:
        folder: The run.
        name: The stage's name.
        stages: The folders of the stages so far, this one last.
        loggers: The names of those that are wanted.

    Raises:
        SettingError: One is wanted and not installed.
    """
    others = [open_logger(logger, folder, name) for logger in loggers]
    is_first = True

    def add(line: dict[str, Any]) -> None:
        nonlocal is_first
        if is_first:
            join_logs(folder, stages)  # the line is in the stage's log already
        else:
            with append_to(folder / METRICS) as stream:
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        is_first = False
        for write in others:
            write(line)

    return add


def copy_folder(source: Path, target: Path) -> bool:
    """Copy a folder in place of another, all of it or nothing, where they differ; return whether they did."""
    if target.exists() and _sha256(target) == _sha256(source):
        return False
    with atomic_folder(target) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return True


def _sha256(folder: Path) -> str:
    """Return the hash of a folder, whatever its card says."""
    return sha256_of_folder(folder, of=lambda file: file.name != CARD)


def read_record(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where there is none, or no such file."""
    try:
        record = read_json(path)
    except InputError:
        return {}
    return record if isinstance(record, dict) else {}
