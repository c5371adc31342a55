"""A sweep: one recipe with every combination of some settings, each in a folder of its own below one."""

import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tercet.distributed.settings import LOCAL, Engine
from tercet.errors import OutputError, SettingError
from tercet.storage.assignments import parse_assignment
from tercet.storage.files import make_folder, write_json
from tercet.training.pipeline import RunResult, check_tasks, run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.runs import read_record

SWEEP = "sweep.json"
"""What a sweep is made of: the settings that differ, and which values each run has."""

_COMMAS = re.compile(r",(?![^\[{]*[\]}])")
"""Those between values, not those within a list or mapping."""


@dataclass(frozen=True, repr=False)
class SweepResult:
    """What a sweep came to."""

    folder: Path
    runs: dict[str, RunResult]
    """By the name of their folders, in the order of the values."""

    def to_dict(self) -> dict[str, Any]:
        """Return what every run came to."""
        return {name: run.to_dict() for name, run in self.runs.items()}

    def __repr__(self) -> str:
        return "\n".join([f"Sweep of {len(self.runs)} runs in {self.folder}", *map(repr, self.runs.values())])


def points_of(sweeps: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the grid of `PATH=VALUE,VALUE...`: the name of each run's folder, and the value of each path there.

    Raises:
        SettingError: One has no values, or a path stands twice.
    """
    axes: dict[str, list[str]] = {}
    for sweep in sweeps:
        path, _ = parse_assignment(sweep)
        if path in axes:
            raise SettingError(f"--sweep {path}: is given twice. Name all its values at once: {path}=A,B.")
        axes[path] = [value.strip() for value in _COMMAS.split(sweep.partition("=")[2])]
        if not all(axes[path]) or len(set(axes[path])) < len(axes[path]):
            raise SettingError(f"--sweep {sweep}: a value is empty or stands twice. Write {path}=A,B.")
    ends = Counter(path.rpartition(".")[2] for path in axes)
    short = {path: end if ends[end := path.rpartition(".")[2]] == 1 else path for path in axes}
    found = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        name = "_".join(re.sub(r"[^\w.+-]", "-", f"{short[path]}-{value}") for path, value in point.items())
        if name in found:
            raise SettingError(f"--sweep: two combinations would have the folder {name}. Sweep them one by one.")
        found[name] = point
    return found


def run_sweep(
    recipe: str | Path,
    folder: str | Path,
    sweeps: Sequence[str],
    *,
    changes: Sequence[str] = (),
    data: str | Path | None = None,
    env: Sequence[str] = (),
    dry_run: bool = False,
    force: bool = False,
    loggers: Sequence[str] = (),
    engine: Engine = LOCAL,
    progress: bool = False,
) -> SweepResult:
    """Run a recipe once for every combination of values; see `train`. What is done is skipped.

    Raises:
        TercetError: Something about the recipe, its inputs or a training is not as it should be.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingError("--sweep: is for one process. Start its runs one by one with --set.")
    points = points_of(sweeps)
    given = {name: [f"{path}={value}" for path, value in point.items()] for name, point in points.items()}
    recipes = {name: read_recipe(recipe, changes=[*changes, *own], env=env, data=data) for name, own in given.items()}
    for read in recipes.values():  # all of them before the first one trains
        check_tasks(read)
    folder = Path(folder)
    if dry_run:
        return SweepResult(folder, {name: RunResult((), None, None, recipes[name], folder / name) for name in points})
    _record(folder, points)
    options: dict[str, Any] = {"data": data, "force": force, "loggers": loggers, "progress": progress}
    options["engine"] = engine
    return SweepResult(folder, {name: run_recipe(recipes[name], folder / name, **options) for name in points})


def _record(folder: Path, points: dict[str, dict[str, str]]) -> None:
    """Write down which runs there are, beside those of earlier values of the same settings.

    Raises:
        OutputError: The folder holds something else.
    """
    make_folder(folder)
    earlier = read_record(folder / SWEEP).get("runs", {})
    others = [path.name for path in folder.iterdir() if not path.name.startswith(".") and path.name != SWEEP]
    if others and not earlier:
        raise OutputError(f"{folder}: holds {', '.join(sorted(others)[:3])} and is no sweep's. Name a new folder.")
    settings = list(next(iter(points.values())))
    for point in earlier.values():
        if list(point) != settings:
            raise OutputError(f"{folder}: is a sweep over {', '.join(point)}. Name a new folder, or sweep the same.")
    write_json(folder / SWEEP, {"runs": earlier | points})
