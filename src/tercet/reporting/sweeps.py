"""Sweeps: the scores by the settings that differ, as means over seeds with their spread."""

import math
from collections.abc import Sequence

from tercet.reporting.document import Block, Cell, Heading, Row, Table, Text
from tercet.reporting.others import GEOMETRY, SPEED, score_of, task_names
from tercet.reporting.results import Run

_SEED = "seed"
_SHAPE = ("alignment", "uniformity")


def sweeps(runs: Sequence[Run]) -> list[Block]:
    """Return a table for each sweep: a row for each combination of settings, over all of its seeds."""
    blocks: list[Block] = []
    for folder in dict.fromkeys(run.sweep for run in runs if run.sweep is not None):
        own = [run for run in runs if run.sweep == folder]
        blocks += [Heading(f"Sweep {folder}", level=3), _table(own)]
    text = Text("Means over seeds; below them the lowest and the highest. The best mean of a task is in bold.")
    return [Heading("Sweeps"), text, *blocks] if blocks else []


def _table(runs: Sequence[Run]) -> Table:
    settings = [path for path, _ in runs[0].point if path != _SEED]
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(value for path, value in run.point if path != _SEED), []).append(run)
    tasks = [task for task in task_names(runs) if task not in (GEOMETRY, SPEED)]
    shape = [name for name in _SHAPE if any(_shape(run, name) is not None for run in runs)]
    columns = [_column([[score_of(run, task) for run in own] for own in groups.values()], best=True) for task in tasks]
    columns += [_column([[_shape(run, name) for run in own] for own in groups.values()]) for name in shape]
    rows = [
        Row((*map(Cell, values), Cell(str(len(own))), *(column[number] for column in columns)))
        for number, (values, own) in enumerate(groups.items())
    ]
    header = map(Cell, (*settings, "Runs", *tasks, *shape))
    return Table(tuple(header), tuple(rows), num_text=len(settings))


def _shape(run: Run, name: str) -> float | None:
    value: float | None = getattr(run.tasks[GEOMETRY], name) if GEOMETRY in run.tasks else None
    return value


def _column(groups: Sequence[Sequence[float | None]], *, best: bool = False) -> list[Cell]:
    found = [[value for value in values if value is not None] for values in groups]
    means = [math.fsum(values) / len(values) if values else None for values in found]
    highest = max((mean for mean in means if mean is not None), default=None) if best and len(means) > 1 else None
    return [
        Cell()
        if mean is None
        else Cell(
            f"{mean:.2f}",
            best=mean == highest,
            under=f"{min(values):.2f} to {max(values):.2f}" if len(values) > 1 else "",
        )
        for mean, values in zip(means, found, strict=True)
    ]
