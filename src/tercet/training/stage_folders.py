"""The folder of a stage: done, to be gone on with, or of other settings; nothing that took long is thrown away."""

import hashlib
import logging
import re
import shutil
from pathlib import Path
from typing import Any

from tercet.errors import InputError, OutputError
from tercet.storage.files import make_folder, target_errors, write_json
from tercet.storage.hashing import sha256_of_path
from tercet.storage.locks import hold
from tercet.storage.manifest import (
    MANIFEST,
    damage_of,
    is_whole,
    manifest_of,
    read_manifest,
    recorded_write,
    write_manifest,
)
from tercet.training.runs import LOCK, METRICS, is_run, read_record

KEPT = "kept"
"""Stages of a run that other settings made, by name and key."""

CLOCK = "time.json"
"""In the folder of a stage that is not done: how long earlier attempts took."""

_KEY, _RECORD = "key", "stage.json"
_CHANGED = "its settings or inputs have changed"

logger = logging.getLogger("tercet")


def prune(run: str | Path) -> list[Path]:
    """Remove the stages of a run that other settings made and that its recipe no longer uses.

    Args:
        run: The run's folder.

    Returns:
        The folders that were removed.

    Raises:
        InputError: It is no run.
        OutputError: A run is going on in it, or something cannot be removed.
    """
    folder = Path(run)
    if not folder.is_dir() or not is_run(folder):
        raise InputError(f"{folder}: is no run. Name a folder that `tercet train` wrote.")
    with hold(folder / LOCK), target_errors(folder):
        found = sorted(folder.glob(f"{KEPT}/*"))
        if (folder / KEPT).is_dir():
            _remove(folder / KEPT)
        return found


def trusted_record(folder: Path) -> dict[str, Any]:
    """Return the record of a stage that is done, where its hash and its key agree with it; else an empty one."""
    record, manifest = folder / _RECORD, folder / MANIFEST
    if not manifest.exists() or any(damage_of(manifest, of=lambda file: file == record)):
        return {}
    found = read_record(record)
    return found if found.get("key") == _read_text(folder / _KEY) else {}


class StageFolder:
    """The folder of one stage: whose settings it is of, whether it is done, and what is there of other settings.

    Args:
        run: The run.
        folder: The stage's folder.
        output: What the stage makes.
        key: The hash of everything that decides it.
        about: What its record says besides, before it has run.
    """

    def __init__(self, run: Path, folder: Path, *, output: Path, key: str, about: dict[str, Any]) -> None:
        self._run, self._folder, self._output, self._key, self._about = run, folder, output, key, about

    @property
    def is_of_others(self) -> bool:
        """Whether other settings or inputs made what is there."""
        return self._folder.exists() and not self._folder.is_symlink() and self._why_not() == _CHANGED

    def prepare(self) -> dict[str, Any] | None:
        """Return the record of a stage that is done; else make its folder ready to start or to go on.

        What other settings made, or what is damaged, is put aside into `kept/`, and comes back with its settings.
        """
        if self._folder.is_symlink():
            raise OutputError(f"{self._folder}: is a link, which is not followed. Remove it, or name a new folder.")
        with target_errors(self._folder):
            if self._folder.exists() and (why := self._why_not()):
                self._put_aside(why)
            if not self._folder.exists():
                self._bring_back()
        record = self._record()
        if record is None:
            make_folder(self._folder)
            with recorded_write(self._folder / _KEY, "w") as stream:
                stream.write(self._key)
        return record

    def finish(self, record: dict[str, Any]) -> None:
        """Write down that the stage is done, and the hashes of all that it made."""
        write_json(self._folder / _RECORD, {**record, "key": self._key, "output": sha256_of_path(self._output)})
        self.tidy()
        write_manifest(self._folder)

    def tidy(self) -> None:
        """Remove what a stage needs only until it is done."""
        shutil.rmtree(self._folder / "checkpoints", ignore_errors=True)
        (self._folder / CLOCK).unlink(missing_ok=True)

    def _record(self) -> dict[str, Any] | None:
        record = read_record(self._folder / _RECORD)
        if record.get("key") != self._key:
            return None
        self.tidy()  # where a kill came before it
        if not (self._folder / MANIFEST).exists():  # as an earlier version left it, or a kill
            write_manifest(self._folder)
        return record

    def _why_not(self) -> str:
        """Return why a folder cannot be used; empty where it can."""
        key, record, manifest = (self._folder / name for name in (_KEY, _RECORD, MANIFEST))
        damaged = dict(damage_of(manifest)) if manifest.exists() else {}
        damaged.pop(self._folder / METRICS, None)  # the log is only looked at
        found = read_record(record)
        if manifest in damaged:
            logger.warning("%s: is damaged, and written anew where all else is whole", manifest)
            manifest.unlink()
        elif [*damaged] == [record] and _read_text(key) == self._key:
            logger.warning("%s: is damaged, and written anew: what it made is whole", record)
            self.finish(self._about)
        elif damaged and found.get("key") == self._key and self._is_output(found.get("output")):
            logger.warning("%s: does not agree with %s, and is written anew: what it made is whole", manifest, record)
            manifest.unlink()
        elif damaged:
            file = next(iter(damaged))
            return f"{file} {damaged[file]}"
        if not record.exists():
            return self._why_not_go_on(key)
        if not {"key", "output"} <= found.keys() and not damaged:
            return f"{record} is damaged"
        if not manifest.exists() and found.get("key") == self._key:
            if not self._is_output(found["output"]):
                return f"{self._output} is not as it was written"
        return "" if read_record(record).get("key") == self._key else _CHANGED

    def _is_output(self, digest: object) -> bool:
        return self._output.exists() and sha256_of_path(self._output) == digest

    def _why_not_go_on(self, key: Path) -> str:
        """Return why a stage that is not done cannot go on; empty where it can."""
        if not key.exists() or key.read_bytes() == self._key.encode():
            return ""
        if self._is_key_of(key):
            logger.warning("%s: is damaged, and its hash says that it was the key of these settings", key)
            return ""
        return _CHANGED if is_whole(key) else f"{key} is damaged"

    def _is_key_of(self, key: Path) -> bool:
        """Return whether the hash beside a key is that of the key that is wanted."""
        try:
            return read_manifest(manifest_of(key))[_KEY] == hashlib.sha256(self._key.encode()).hexdigest()
        except (OSError, ValueError, KeyError):
            return False

    def _put_aside(self, why: str) -> None:
        name = self._folder.name.partition("-")[2]
        key = str(read_record(self._folder / _RECORD).get("key") or _read_text(self._folder / _KEY))[:12]
        ending = key if why == _CHANGED and re.fullmatch(r"[0-9a-f]{12}", key) else "damaged"
        target = self._run / KEPT / f"{name}-{ending}"
        number = 1
        while target.exists():
            number += 1
            target = target.with_name(f"{name}-{ending}.{number}")
        make_folder(target.parent)
        self._folder.replace(target)
        logger.warning("%s: %s, so it starts again; what was there is kept in %s", self._folder, why, target)

    def _bring_back(self) -> None:
        kept = self._run / KEPT / f"{self._folder.name.partition('-')[2]}-{self._key[:12]}"
        if kept.is_dir() and not kept.is_symlink():
            make_folder(self._folder.parent)
            kept.replace(self._folder)
            if why := self._why_not():
                self._put_aside(why)
            else:
                logger.warning("%s: these settings were used before, and what they made is back", self._folder)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _remove(folder: Path) -> None:
    """Remove a folder at once: killed meanwhile, all of it is there or, under another name, what is left of it."""
    gone = folder.with_name(f".{folder.name}.removed_.tercet")  # as temporary folders are called, which are swept
    shutil.rmtree(gone, ignore_errors=True)
    folder.replace(gone)
    shutil.rmtree(gone)
