"""Your own task: a file, not code. It is read as training reads it, so a file that trains also evaluates.

| kind | columns | metric |
|---|---|---|
| scored | a, b, score | Spearman of the cosine |
| geometry | a, b, score (0 to 5) | alignment, uniformity, anisotropy |
| paraphrase | a, b, label (0 or 1) | average precision of the cosine |
| rerank | query, candidate, label (0 or 1) | MAP over queries |
| classes | text, label | accuracy of logistic regression, nested 10-fold |
| triplets | anchor, positive, negative; and all that becomes triplets in training | how often the positive is nearer |
| nli | premise, hypothesis, label | the same, of the triplets that training makes of it |
| parallel | source, target, or named by languages | alignment and uniformity of translations |

`data/rows/columns.py` has the other names that columns may have. `ntrex:eng-LANGUAGE` and `ntrex:LANGUAGE-eng` are
parallel pairs of NTREX in the data folder.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tercet.data.reading.formats import format_in, read_records
from tercet.data.rows.checks import is_verdict
from tercet.data.rows.columns import FIELDS, FileKind, RowKind, bind, has_columns, is_judged
from tercet.data.rows.kinds import ClassText, NliPair, ParaphrasePair, RankedPair, Row, ScoredPair, Triplet
from tercet.data.rows.nli import as_triplets
from tercet.data.rows.one_file import read_rows
from tercet.data.rows.records import RecordReader
from tercet.data.sets.folder import DataFolder
from tercet.errors import InputError, SettingError
from tercet.evaluation.intervals import Items
from tercet.evaluation.metrics import average_precision, cosine
from tercet.evaluation.tasks import sts
from tercet.evaluation.tasks.classifier import score_nested
from tercet.evaluation.tasks.geometry import measure
from tercet.evaluation.tasks.logistic import ClassifierSettings
from tercet.evaluation.tasks.pairs import Pairs, score_paraphrase, score_spearman
from tercet.evaluation.tasks.task import Embed, Options, Result, Task
from tercet.evaluation.tasks.translation import parallel_task
from tercet.evaluation.tasks.triplets import score_triplets

SCORED_KINDS = ("scored", "paraphrase", "rerank", "classes", "triplets", "nli")
"""Kinds of file whose score is better the higher it is."""

PARALLEL = ("parallel", "ntrex")
"""Kinds of parallel pairs: a file, or NTREX."""

_LEAST_ROWS, _LEAST_MOST_ROWS = 3, 12
"""The fewest rows of any label, and of the most frequent one, from which ten folds can be made, and ten of the rest."""


def own_task(kind: str, path: str) -> Task:
    """Return the task of a file.

    Raises:
        SettingError: There is no such kind of file.
    """
    if kind == "labelled":
        raise SettingError(
            f"task {kind}:{path}: is now called classes:{path} (text, label), or nli:{path} for NLI pairs."
        )
    if kind in PARALLEL:
        return parallel_task(kind, path)
    if kind not in _TASKS:
        raise SettingError(f"task {kind}:{path}: no such kind of file. Known: {', '.join([*_TASKS, *PARALLEL])}.")
    own = _TASKS[kind]

    def run(data: DataFolder, embed: Embed, options: Options) -> Result:
        file = Path(path).absolute()
        if not file.is_file():
            raise InputError(f"{path}: no such file. A {kind} file has the columns {', '.join(FIELDS[own.shown])}.")
        return own.score(_read(data.path(str(file)), kind, own), embed, options)

    return Task(f"{kind}:{path}", run, needs_data=False)


def kind_of(path: str | Path) -> str:
    """Return what kind of task a file is for, by the columns of its first row.

    Only NLI and paraphrase pairs may have the same columns: there the first label tells.

    Raises:
        InputError: It cannot be read, or no kind has its columns.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file. Name a TSV, CSV, JSONL or Parquet file with columns.")
    _, record = next(read_records(path, format_in(path)), (0, {}))
    names = tuple(record)
    if has_columns("nli", names) and has_columns("paraphrase", names) and not has_columns("scored", names):
        return "paraphrase" if is_verdict(record[bind("paraphrase", names, {})["label"][0]]) else "nli"
    for kind in ("scored", "rerank", "nli", "paraphrase", "triplets", "parallel", "classes"):
        if has_columns(kind, names):
            return kind
    if has_columns("sets", names) or (has_columns("pairs", names) and not is_judged(names)):
        return "triplets"
    kinds = "; ".join(f"{', '.join(FIELDS[_TASKS[kind].shown])} ({kind})" for kind in SCORED_KINDS)
    raise InputError(f"{path}: has the columns {', '.join(record) or 'none'}. A task's file has: {kinds}.")


def file_of(name: str) -> Path | None:
    """Return the file that a task is about: `KIND:FILE`, or a file alone; None where there is none."""
    files = (Path(name), Path(name.partition(":")[2]))
    return next((file for file in files if file.is_file()), None)


def trajectory_task(name: str) -> Task:
    """Return the task that measures alignment and uniformity on a set: an STS task's pairs, or a file's.

    Raises:
        SettingError: These cannot be measured there.
    """
    if name in {task.name for task in sts.TASKS}:
        return Task(name, lambda data, embed, _: measure(Pairs.joined([*sts.load_pairs(data, name).values()]), embed))
    kind, _, path = name.partition(":")
    if kind not in ("geometry", *PARALLEL) or not path:
        known = "an STS task such as STSB-dev, geometry:FILE, parallel:FILE or ntrex:eng-LANGUAGE"
        raise SettingError(f"trajectory.sets {name!r}: has no alignment. Take {known}.")
    return own_task(kind, path)


@dataclass(frozen=True)
class _OwnTask:
    """How a kind of file is read and scored."""

    wanted: RowKind
    file: FileKind | None
    """What the file holds; any that gives the wanted rows where None."""
    score: Callable[[list[Any], Embed, Options], Result]

    @property
    def shown(self) -> FileKind:
        """The kind of file whose columns messages name."""
        return self.file or "triplets"


def _read(path: Path, kind: str, own: _OwnTask) -> list[Row]:
    columns = f"A {kind} file has the columns {', '.join(FIELDS[own.shown])}, or others that stand for them."
    reader = RecordReader(own.wanted, kind=own.file, empty=True)
    rows = [*read_rows(path, reader, fix=columns)]
    if not rows:
        raise InputError(f"{path}: is empty. {columns}")
    if own.wanted == "triplets" and reader.kind == "texts":
        raise InputError(f"{path}: has texts alone, and nothing to score them by. {columns}")
    return rows


def _scored(rows: list[ScoredPair], embed: Embed, options: Options) -> Result:
    return score_spearman({"file": Pairs.of((row.a, row.b, row.score) for row in rows)}, embed, items=options.items)


def _geometry(rows: list[ScoredPair], embed: Embed, _options: Options) -> Result:
    return measure(Pairs.of((row.a, row.b, row.score) for row in rows), embed)


def _paraphrase(rows: list[ParaphrasePair], embed: Embed, options: Options) -> Result:
    return score_paraphrase(Pairs.of((row.a, row.b, row.same) for row in rows), embed, items=options.items)


def _rerank(rows: list[RankedPair], embed: Embed, options: Options) -> Result:
    pairs = Pairs.of((row.query, row.candidate, row.relevant) for row in rows)
    vectors = embed(pairs.texts)
    scores = cosine(vectors[: len(rows)], vectors[len(rows) :])
    queries: dict[str, list[int]] = {}
    for i, query in enumerate(pairs.first):
        queries.setdefault(query, []).append(i)
    answered = [rows_of for rows_of in queries.values() if pairs.gold[rows_of].any()]
    if not answered:
        raise InputError("rerank: no query has a candidate with label 1. Check the label column.")
    precisions = np.array([average_precision(pairs.gold[i], scores[i]) for i in answered])
    return {
        "metric": "MAP",
        "score": 100 * float(precisions.mean()),
        "num": len(answered),
        "protocol": "candidates re-ranked by cosine, queries without a relevant candidate left out",
        **({"items": Items("mean", precisions)} if options.items else {}),
    }


def _check_labels(counts: Counter[str]) -> None:
    """Raise InputError if there are too few rows for ten folds, and for ten more within the rows of nine."""
    (most, num_most), (least, num_least) = counts.most_common()[0], counts.most_common()[-1]
    if len(counts) < 2:
        raise InputError(f"all {num_most} rows have the label {most!r}. Give rows of two labels or more.")
    if num_least < _LEAST_ROWS:
        raise InputError(
            f"the label {least!r} has {num_least} rows, and nested 10-fold needs {_LEAST_ROWS} of every label. "
            "Add some, or take its rows out."
        )
    if num_most < _LEAST_MOST_ROWS:
        raise InputError(
            f"the most frequent label, {most!r}, has {num_most} rows, and nested 10-fold needs {_LEAST_MOST_ROWS} of "
            "one label. Add some."
        )


def _classes(rows: list[ClassText], embed: Embed, options: Options) -> Result:
    _check_labels(Counter(row.label for row in rows))
    names = sorted({row.label for row in rows})
    labels = np.array([names.index(row.label) for row in rows])
    vectors = embed([row.text for row in rows])
    outcome = score_nested(
        vectors, labels, classifier=options.classifier, settings=ClassifierSettings(seed=options.seed)
    )
    return {
        "metric": "accuracy",
        "score": 100 * outcome.accuracy,
        "num": len(labels),
        "protocol": f"logistic regression ({options.classifier}), nested 10-fold",
        "labels": names,
        **({"items": Items("mean", (outcome.predictions == labels).astype(np.float64))} if options.items else {}),
    }


def _triplets(rows: list[Triplet | NliPair], embed: Embed, options: Options) -> Result:
    triplets = [row for row in rows if isinstance(row, Triplet)]
    triplets = triplets or as_triplets(row for row in rows if isinstance(row, NliPair))
    return score_triplets(triplets, embed, items=options.items)


_TASKS: dict[str, _OwnTask] = {
    "scored": _OwnTask("scored", "scored", _scored),
    "geometry": _OwnTask("scored", "scored", _geometry),
    "paraphrase": _OwnTask("paraphrase", "paraphrase", _paraphrase),
    "rerank": _OwnTask("rerank", "rerank", _rerank),
    "classes": _OwnTask("classes", "classes", _classes),
    "triplets": _OwnTask("triplets", None, _triplets),
    "nli": _OwnTask("triplets", "nli", _triplets),
}
"""The kinds of file with a task of their own, besides PARALLEL."""
