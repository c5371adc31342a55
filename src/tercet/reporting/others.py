"""Tasks that no paper prints, parts of tasks, geometry and speed."""

from collections.abc import Sequence
from dataclasses import replace

from tercet.evaluation.published import load_tables
from tercet.reporting.document import Block, Cell, Details, Heading, Row, Table, Text
from tercet.reporting.overview import in_short
from tercet.reporting.results import Run, TaskResult

GEOMETRY, SPEED, SELECTION = "geometry", "speed", "STSB-dev"

_GEOMETRY = {
    "alignment": "Alignment",
    "uniformity": "Uniformity",
    "anisotropy": "Anisotropy",
    "alignment_as_printed": "Alignment without square",
    "uniformity_as_printed": "Uniformity without square",
}
_BESIDE = {
    "mean": "mean over subsets",
    "weighted_mean": "mean over subsets, weighted by size",
    "pearson": "Pearson",
    "cosine_spearman": "Spearman of the cosine",
    "f1": "F1",
}


def other_tasks(runs: Sequence[Run]) -> list[Block]:
    """Return a table of the tasks that no paper prints, and of the one that models are selected by."""
    printed = {column for table in load_tables() for column in table.columns} - {SELECTION}
    names = [task for task in task_names(runs) if task not in {*printed, GEOMETRY, SPEED}]
    if not names:
        return []
    columns = [[score_of(run, name) for run in runs] for name in names]
    return [
        Heading("Other tasks"),
        Text("Tasks that no paper prints, and the STS-B dev set. Scores x 100, higher is better."),
        Table(
            (Cell("Model"), *(Cell(name, under=_measure(runs, name)) for name in names)),
            _rows(runs, [_cells(values, decimals=2) for values in columns]),
        ),
    ]


def parts(runs: Sequence[Run]) -> list[Block]:
    """Return, folded away, the subsets of tasks and the metrics beside the score."""
    blocks: list[Block] = []
    for name in task_names(runs):
        lines: dict[str, list[float | None]] = {}
        having = [run for run in runs if name in run.tasks]
        for key, title in _BESIDE.items():
            lines[title] = [getattr(run.tasks[name], key) for run in having]
        for dims in dict.fromkeys(dims for run in having for dims in run.tasks[name].by_dims):
            lines[f"first {dims} numbers"] = [run.tasks[name].by_dims.get(dims) for run in having]
        for subset in dict.fromkeys(subset for run in having for subset in run.tasks[name].subsets):
            lines[subset] = [run.tasks[name].subsets.get(subset) for run in having]
        lines = {title: values for title, values in lines.items() if any(value is not None for value in values)}
        if lines:
            lines = {f"score ({_metric(having, name)})": [score_of(run, name) for run in having]} | lines
            rows = tuple(Row((Cell(title), *_cells(values, decimals=2))) for title, values in lines.items())
            table = Table((Cell(name), *(Cell(run.label) for run in having)), rows)
            blocks.append(Details(name, (table,)))
    text = Text("Subsets of a task, and metrics beside its score.")
    return [Heading("Parts of tasks"), text, *blocks] if blocks else []


def geometry(runs: Sequence[Run]) -> list[Block]:
    """Return the table of alignment, uniformity and anisotropy."""
    having = [run for run in runs if GEOMETRY in run.tasks]
    if not having:
        return []
    sets = [run.tasks[GEOMETRY].measured_on or "" for run in having]
    columns = [Cell("Model"), Cell("Measured on"), *map(Cell, _GEOMETRY.values())]
    figures = []
    for key in _GEOMETRY:
        values = [getattr(run.tasks[GEOMETRY], key) for run in having]
        figures.append(_cells(values, decimals=3, lower_is_better=True, same=len(set(sets)) == 1))
    rows = tuple(
        Row((Cell(run.label), Cell(measured_on), *(column[i] for column in figures)), kind="ours")
        for i, (run, measured_on) in enumerate(zip(having, sets, strict=True))
    )
    protocols = dict.fromkeys(run.tasks[GEOMETRY].protocol for run in having if run.tasks[GEOMETRY].protocol)
    text = " ".join(["Lower is better in every column.", *(f"Protocol: {protocol}." for protocol in protocols)])
    return [Heading("Geometry"), Text(text), Table(tuple(columns), rows, num_text=2)]


def speed(runs: Sequence[Run]) -> list[Block]:
    """Return the table of sentences a second and memory, and the whole grid folded away."""
    having = [run for run in runs if SPEED in run.tasks]
    if not having:
        return []
    results = [run.tasks[SPEED] for run in having]
    sizes = [Cell(in_short(result.num_parameters)) if result.num_parameters else Cell() for result in results]
    rates = _cells([result.score for result in results], decimals=1)
    memory = _cells([result.peak_rss_gb for result in results], decimals=2, lower_is_better=True)
    header = (Cell("Model"), Cell("Parameters"), Cell("Sentences/s"), Cell("Peak memory", under="GB"))
    protocols = dict.fromkeys(result.protocol for result in results if result.protocol)
    text = " ".join(
        ["Only runs on one machine can be compared.", *(f"Protocol: {protocol}." for protocol in protocols)]
    )
    blocks: list[Block] = [Heading("Speed"), Text(text), Table(header, _rows(having, [sizes, rates, memory]))]
    grid = _grid(having, results)
    return (
        [*blocks, Details("Sentences/s and peak memory by length, batch and precision", (grid,))]
        if grid.rows
        else blocks
    )


def _grid(having: Sequence[Run], results: list[TaskResult]) -> Table:
    grids = [{(c.words, c.batch, c.precision): c for c in result.grid} for result in results]
    rows = []
    for key in dict.fromkeys(key for grid in grids for key in grid):
        words, batch, precision = key
        measured = [grid.get(key) for grid in grids]
        cells = [
            replace(cell, under=f"{c.peak_rss_gb:.2f} GB") if c is not None and c.peak_rss_gb is not None else cell
            for cell, c in zip(
                _cells([c.sentences_per_s if c else None for c in measured], decimals=1), measured, strict=True
            )
        ]
        at_once = f"batch {batch}" if batch else "own batches"
        rows.append(Row((Cell(f"{words} words"), Cell(at_once), Cell(precision), *cells)))
    header = (Cell("Length"), Cell("Batch"), Cell("Precision"), *(Cell(run.label) for run in having))
    return Table(header, tuple(rows), num_text=3)


def task_names(runs: Sequence[Run]) -> list[str]:
    """Return all tasks that one of the runs has a score of."""
    return list(dict.fromkeys(task for run in runs for task in run.tasks))


def score_of(run: Run, name: str) -> float | None:
    """Return a run's score on a task; None where it has none."""
    return run.tasks[name].score if name in run.tasks else None


def _metric(runs: Sequence[Run], name: str) -> str:
    return ", ".join(dict.fromkeys(run.tasks[name].metric for run in runs if name in run.tasks))


def _measure(runs: Sequence[Run], name: str) -> str:
    counts = dict.fromkeys(f"{run.tasks[name].num:,}" for run in runs if name in run.tasks and run.tasks[name].num)
    return " \u00b7 ".join(text for text in (_metric(runs, name), " / ".join(counts)) if text)


def _cells(
    values: Sequence[float | None], *, decimals: int, lower_is_better: bool = False, same: bool = True
) -> list[Cell]:
    """Return the cells of values that are compared with one another; the best of two or more is marked."""
    shown = [None if value is None else round(value, decimals) + 0.0 for value in values]
    there = [value for value in shown if value is not None]
    best = (min if lower_is_better else max)(there) if len(there) > 1 and same else None
    return [Cell() if value is None else Cell(f"{value:,.{decimals}f}", best=value == best) for value in shown]


def _rows(runs: Sequence[Run], columns: Sequence[Sequence[Cell]]) -> tuple[Row, ...]:
    return tuple(
        Row((Cell(run.label), *(column[i] for column in columns)), kind="ours")
        for i, run in enumerate(runs)
        if any(column[i] != Cell() for column in columns)
    )
