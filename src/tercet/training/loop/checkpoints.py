"""Checkpoints that are whole or not used: safetensors and JSON, a manifest of hashes written last, one rename."""

import logging
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tercet.errors import InputError, OutputError
from tercet.storage.files import atomic_folder, read_json, target_errors, write_json
from tercet.storage.hashing import sha256_of_file
from tercet.storage.manifest import MANIFEST, damage_of, read_manifest, write_manifest

logger = logging.getLogger("tercet")

_STATE = "state.json"
_EARLIER = "manifest.json"
"""The manifest of earlier versions, with the same hashes as JSON."""

_NUM_LAST = 2


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint whose files are as they were written."""

    folder: Path
    step: int
    state: dict[str, Any]
    """What is not a tensor: the position in the data, the best score."""

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Return one group of tensors by their names."""
        return load_file(self.folder / f"{name}.safetensors")


class Checkpoints:
    """The checkpoints of one training, in a folder of their own. The last two are kept, with the best one of each.

    `state["best"]`, where it is not None, names the step of the best one, and a checkpoint is of use only with it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, tensors: dict[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        """Write a checkpoint, all of it or nothing, and remove those that are no longer needed.

        Raises:
            OutputError: It cannot be written; what was there before is still there.
        """
        target = self._path(step)
        try:
            with atomic_folder(target) as folder:
                for name, group in tensors.items():
                    save_file(group, folder / f"{name}.safetensors")
                write_json(folder / _STATE, {"step": step, **state})
                write_manifest(folder)
        except SafetensorError as error:
            raise OutputError(f"cannot write {target}: {error}. Check the disk, and run it again.") from error
        last = self.steps()[-_NUM_LAST:]
        for old in set(self.steps()) - {*last, *(self._best_of(kept) for kept in last)}:
            self._remove(old)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, whole or not, in order."""
        found = [re.fullmatch(r"step-(\d+)", path.name) for path in self.folder.glob("step-*")]
        return sorted(int(match[1]) for match in found if match)

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is as it was written; newer ones are removed with a warning."""
        self._sweep()
        whole = {step: checkpoint for step in reversed(self.steps()) if (checkpoint := self.read(step))}
        bests = {step: checkpoint.state.get("best") for step, checkpoint in whole.items()}
        usable = [step for step, best in bests.items() if best is None or best["step"] in whole]
        found = whole[usable[0]] if usable else None
        if whole and found is None:
            logger.warning("%s: the best checkpoint is lost; the best of what follows is kept", self.folder)
            newest = max(whole)
            found = Checkpoint(whole[newest].folder, newest, {**whole[newest].state, "best": None})
        for step in self.steps():
            if found is None or step > found.step or step not in whole:
                self._remove(step)
        return found

    def read(self, step: int) -> Checkpoint | None:
        """Return the checkpoint of a step, or None, with a warning, where a file of it is missing or changed."""
        folder = self._path(step)
        bad = _first_bad_file(folder)
        if bad is not None:
            logger.warning("%s: is missing or damaged, so this checkpoint is not used", bad)
            return None
        return Checkpoint(folder, step, read_json(folder / _STATE))

    def _best_of(self, step: int) -> int:
        best = read_json(self._path(step) / _STATE).get("best")
        return int(best["step"]) if best else step

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def _remove(self, step: int) -> None:
        """Remove a checkpoint under another name, so that a kill leaves none that looks damaged."""
        with target_errors(self.folder):
            gone = self.folder / f".step-{step:08d}.removed"
            shutil.rmtree(gone, ignore_errors=True)
            self._path(step).replace(gone)
            shutil.rmtree(gone)

    def _sweep(self) -> None:
        """Remove what a kill left half-written or half-removed."""
        with target_errors(self.folder):
            for left in self.folder.glob(".step-*"):
                shutil.rmtree(left, ignore_errors=True)


def _first_bad_file(folder: Path) -> Path | None:
    manifest = folder / MANIFEST
    if not manifest.exists() and (folder / _EARLIER).exists():
        return _first_bad_by_json(folder)
    try:
        if _STATE not in read_manifest(manifest):
            return manifest
    except (OSError, ValueError):
        return manifest
    return next((file for file, _ in damage_of(manifest)), None)


def _first_bad_by_json(folder: Path) -> Path | None:
    try:
        hashes: dict[str, Any] = read_json(folder / _EARLIER, kind=dict)
    except InputError:
        return folder / _EARLIER
    if _STATE not in hashes:
        return folder / _EARLIER
    for name, expected in hashes.items():
        file = folder / str(name)
        if not file.is_file() or sha256_of_file(file) != expected:
            return file
    return None
