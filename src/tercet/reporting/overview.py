"""The head of a report: models, settings, versions, what was missing."""

import json
from collections.abc import Sequence
from typing import Any

from tercet.evaluation.published import AVERAGES
from tercet.reporting.document import Block, Cell, Details, Facts, Heading, Row, Table, Text, one_line
from tercet.reporting.results import Run

_AVERAGES = [group for group in AVERAGES if group != "twitter"]  # that one is a part of another
_HASH_LETTERS = 12


def overview(runs: Sequence[Run], *, num_tables: int) -> list[Block]:
    """Return the head of a report."""
    num_tasks = len({task for run in runs for task in run.tasks})
    counts = [_count(len(runs), "model"), _count(num_tasks, "task")]
    if num_tables:
        counts.append(f"beside {_count(num_tables, 'published table')}")
    blocks: list[Block] = [Text(", ".join(counts) + "."), Heading("Models"), _models(runs)]
    blocks += _settings(runs)
    blocks += _missing(runs)
    return blocks


def in_short(num: int) -> str:
    """Return a number of parameters as people say it: 22.7M, 1.24B."""
    for scale, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if num >= scale:
            return f"{num / scale:.3g}{letter}" if num < 999.5 * scale else f"{num / scale:.0f}{letter}"
    return str(num)


def num_parameters(run: Run) -> int | None:
    """Return how many parameters a run's model has, where the results or their speed task say so."""
    named = (run.results.num_parameters, *(task.num_parameters for task in run.tasks.values()))
    return next((num for num in named if num), None)


def _models(runs: Sequence[Run]) -> Table:
    groups = [group for group in _AVERAGES if any(run.average(AVERAGES[group])[0] is not None for run in runs)]
    sized = any(num_parameters(run) for run in runs)
    best: dict[str, float] = {}
    if len(runs) > 1:
        for group in groups:
            found = (run.average(AVERAGES[group]) for run in runs)
            full = [round(value, 2) for value, num in found if value is not None and num == len(AVERAGES[group])]
            best |= {group: max(full)} if full else {}
    rows = []
    for run in runs:
        size = num_parameters(run)
        cells = [Cell(run.label), Cell(run.source)]
        cells += [Cell(in_short(size)) if size else Cell()] if sized else []
        cells += [Cell(str(len(run.tasks)))]
        cells += [_average(run, group, best.get(group)) for group in groups]
        rows.append(Row(tuple(cells), kind="ours"))
    header = [Cell("Model"), Cell("Read from"), *([Cell("Parameters")] if sized else []), Cell("Tasks")]
    header += [Cell(f"Mean of {group}", under=f"{len(AVERAGES[group])} tasks") for group in groups]
    return Table(tuple(header), tuple(rows), num_text=2)


def _average(run: Run, group: str, best: float | None) -> Cell:
    value, num = run.average(AVERAGES[group])
    if value is None:
        return Cell()
    if num < len(AVERAGES[group]):
        return Cell(f"{value:.2f}", under=f"over {num} of {len(AVERAGES[group])}")
    return Cell(f"{value:.2f}", best=round(value, 2) == best)


def _settings(runs: Sequence[Run]) -> list[Block]:
    """Say what all runs share in a line, and put what differs into a table."""
    kinds = {
        "settings": [{name: _plain(value) for name, value in run.results.settings.items()} for run in runs],
        "versions": [{name: one_line(text) for name, text in run.results.versions.items()} for run in runs],
    }
    facts, rows = [], []
    for kind, of_runs in kinds.items():
        shared = []
        for name in dict.fromkeys(name for of_run in of_runs for name in of_run):
            values = [of_run.get(name) for of_run in of_runs]
            if len(set(values)) == 1:
                shared.append(f"{name} {values[0]}")
            else:
                rows.append(Row((Cell(name), *(Cell(value) if value is not None else Cell() for value in values))))
        if shared:
            term = kind.capitalize() if len(runs) == 1 else f"{kind.capitalize()} that all share"
            facts.append((term, (", ".join(map(one_line, shared)),)))
    blocks: list[Block] = [Facts(tuple(facts))] if facts else []
    if rows:
        header = (Cell("Setting that differs"), *(Cell(run.label) for run in runs))
        blocks.append(Table(header, tuple(rows), num_text=len(header)))
    return blocks


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    is_hash = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return {"null": "off", "true": "on", "false": "off"}.get(text) or (text[:_HASH_LETTERS] if is_hash else text)


def _missing(runs: Sequence[Run]) -> list[Block]:
    found: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for task, reason in run.results.missing.items():
            found.setdefault((task, reason), []).append(run.label)
    blocks: list[Block] = []
    if found:
        names = ", ".join(dict.fromkeys(task for task, _ in found))
        rows = tuple(
            Row((Cell(task), Cell("all" if len(labels) == len(runs) > 1 else ", ".join(labels)), Cell(reason)))
            for (task, reason), labels in found.items()
        )
        table = Table((Cell("Task"), Cell("Models"), Cell("Reason")), rows, num_text=3)
        blocks.append(Details(f"Without a score, and in no average: {names}", (table,)))
    differing = _differing_data(runs)
    if differing:
        facts = ("Data that differs", (f"{', '.join(differing)}: the models were not scored on the same files.",))
        blocks.append(Facts((facts,)))
    return blocks


def _differing_data(runs: Sequence[Run]) -> list[str]:
    names = dict.fromkeys(task for run in runs for task in run.tasks)
    return [
        name
        for name in names
        if len({tuple(sorted(run.tasks[name].data.items())) for run in runs if name in run.tasks}) > 1
    ]


def _count(num: int, noun: str) -> str:
    return f"{num} {noun}{'' if num == 1 else 's'}"
