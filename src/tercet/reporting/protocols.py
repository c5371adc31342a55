"""How a score was measured, and where that differs from a paper."""

from collections.abc import Iterator, Sequence

from tercet.evaluation.published import AVERAGES, Table
from tercet.reporting.results import Run

# What a paper leaves open, so that ours can only be one reading of it.
_OPEN = {
    "sentglue": (
        "The paper states neither the features of a pair nor the metric of a task; ours are named above.",
        "The printed Score follows no one definition; our average is the plain mean of the nine columns.",
    ),
}
_FEATURES = {
    True: "classifiers read vectors that are scaled to length 1, as those of Sentence-T5's dual encoder",
    False: "classifiers read vectors as they are, as in the code of SimCSE, GenSE and SBERT",
}
_PRECISIONS = {"fast": "bf16", "auto": "bf16 where the machine has it", "fp16": "fp16", "int8": "int8"}


def our_protocols(table: Table, runs: Sequence[Run]) -> tuple[str, ...]:
    """Return a line for each protocol that our scores in a table were measured by, with its tasks."""
    found: dict[str, dict[str, list[str]]] = {}
    for task in tasks_of(table):
        for run in runs:
            if task in run.tasks and run.tasks[task].protocol:
                found.setdefault(run.tasks[task].protocol, {}).setdefault(task, []).append(run.label)
    lines = []
    for protocol, labels in found.items():
        others = any(task in tasks for other, tasks in found.items() if other != protocol for task in labels)
        who = dict.fromkeys(label for names in labels.values() for label in names)
        lines.append(f"{', '.join(labels)}{' (' + ', '.join(who) + ')' if others else ''}: {protocol}.")
    for normalize, features in _FEATURES.items():
        having = [run for run in runs if run.results.settings.get("normalize") is normalize]
        if any(task in run.tasks for run in having for task in tasks_of(table) if task in AVERAGES["transfer"]):
            lines.append(f"{', '.join(run.label for run in having)}: {features}.")
    return tuple(lines)


def our_differences(table: Table, runs: Sequence[Run]) -> tuple[str, ...]:
    """Return what is known to differ between a table's scores and ours, each with the runs that it is true of."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for line in _differences(table, run):
            found.setdefault(line, []).append(run.label)
    unstated = [line for group in _groups_of(table) for line in _OPEN.get(group, ())]
    return (*unstated, *(f"{', '.join(labels)}: {line}" for line, labels in found.items()))


def _differences(table: Table, run: Run) -> Iterator[str]:
    measured = [task for task in tasks_of(table) if task in run.tasks]
    precision = str(run.results.settings.get("precision", "exact"))
    if precision in _PRECISIONS:
        yield f"embedded with precision {precision} ({_PRECISIONS[precision]}), not in fp32."
    if run.results.settings.get("classifier") == "sklearn" and set(measured) & set(AVERAGES["transfer"]):
        yield "scikit-learn's LogisticRegression, where SentEval trains by Adam."
    counts = [f"{task} {run.tasks[task].num_train:,}" for task in measured if run.tasks[task].num_train]
    if counts:
        yield f"training rows used: {', '.join(counts)}."
    cut = [f"{task} {run.tasks[task].num_truncated:,}" for task in measured if run.tasks[task].num_truncated]
    if cut:
        yield f"texts cut to {run.results.settings.get('max_tokens')} tokens: {', '.join(cut)}."
    yield from (f"{task}: {run.tasks[task].note}." for task in measured if run.tasks[task].note)
    for group in _groups_of(table):
        there = [name for name in AVERAGES[group] if name in run.tasks]
        if there and len(there) < len(AVERAGES[group]):
            of = f"{len(there)} of {len(AVERAGES[group])} tasks"
            yield f"the mean of {group} is over {', '.join(there)} only ({of}) and is not compared."


def tasks_of(table: Table) -> list[str]:
    """Return the tasks of a table: its columns, and the members of its averages."""
    members = [name for group in _groups_of(table) for name in AVERAGES[group]]
    return list(dict.fromkeys([*(column for column in table.columns if column not in table.averages), *members]))


def _groups_of(table: Table) -> list[str]:
    return list(dict.fromkeys(table.averages.values()))
