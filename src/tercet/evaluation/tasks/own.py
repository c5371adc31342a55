"""Anybody's own task: a file, not code.

| kind | columns | metric |
|---|---|---|
| scored | sentence1, sentence2, score | Spearman of the cosine |
| geometry | sentence1, sentence2, score (0 to 5) | alignment, uniformity, anisotropy |
| paraphrase | sentence1, sentence2, label (0 or 1) | average precision of the cosine |
| rerank | query, candidate, label (0 or 1) | MAP over queries |
| labelled | text, label | accuracy of logistic regression, nested 10-fold |
| triplets | anchor, positive, negative | how often the positive is the nearer one |
| parallel | source, target, or named by languages | alignment and uniformity of translations |

`ntrex:eng-LANGUAGE` and `ntrex:LANGUAGE-eng` are parallel pairs of NTREX in the data folder.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tercet.data.reading.formats import format_of, read_records
from tercet.data.rows.kinds import Triplet
from tercet.data.sets.folder import DataFolder
from tercet.errors import InputError, RowError, SettingError
from tercet.evaluation.metrics import average_precision, cosine
from tercet.evaluation.tasks import sts
from tercet.evaluation.tasks.classifier import score_nested
from tercet.evaluation.tasks.geometry import measure
from tercet.evaluation.tasks.logistic import ClassifierSettings
from tercet.evaluation.tasks.pairs import Pairs, score_paraphrase, score_spearman
from tercet.evaluation.tasks.task import Embed, Options, Result, Task
from tercet.evaluation.tasks.translation import parallel_task
from tercet.evaluation.tasks.triplets import score_triplets

_COLUMNS = {
    "scored": ("sentence1", "sentence2", "score"),
    "geometry": ("sentence1", "sentence2", "score"),
    "paraphrase": ("sentence1", "sentence2", "label"),
    "rerank": ("query", "candidate", "label"),
    "labelled": ("text", "label"),
    "triplets": ("anchor", "positive", "negative"),
}

SCORED_KINDS = ("scored", "paraphrase", "rerank", "labelled", "triplets")
"""Kinds of file whose score is better the higher it is."""

_LEAST_ROWS, _LEAST_MOST_ROWS = 3, 12
"""The fewest rows of any label, and of the most frequent one, from which ten folds can be made, and ten of the rest."""

PARALLEL = ("parallel", "ntrex")
"""Kinds of parallel pairs: a file, or NTREX."""


def own_task(kind: str, path: str) -> Task:
    """Return the task of a file.

    Raises:
        SettingError: There is no such kind of file.
    """
    if kind in PARALLEL:
        return parallel_task(kind, path)
    if kind not in _COLUMNS:
        raise SettingError(f"task {kind}:{path}: no such kind of file. Known: {', '.join([*_COLUMNS, *PARALLEL])}.")

    def run(data: DataFolder, embed: Embed, options: Options) -> Result:
        file = Path(path).absolute()
        if not file.is_file():
            raise InputError(f"{path}: no such file. A {kind} file has the columns {', '.join(_COLUMNS[kind])}.")
        return _SCORERS[kind](_read(data.path(str(file)), kind), embed, options)

    return Task(f"{kind}:{path}", run, needs_data=False)


def kind_of(path: str | Path) -> str:
    """Return what kind of task a file is for, by the columns of its first row.

    Raises:
        InputError: It cannot be read, or no kind has its columns.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file. Name a TSV, CSV, JSONL or Parquet file with columns.")
    _, record = next(read_records(path), (0, {}))
    for kind in SCORED_KINDS:
        if all(column in record for column in _COLUMNS[kind]):
            return kind
    kinds = "; ".join(f"{', '.join(_COLUMNS[kind])} ({kind})" for kind in SCORED_KINDS)
    raise InputError(f"{path}: has the columns {', '.join(record) or 'none'}. A task's file has: {kinds}.")


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


def _read(path: Path, kind: str) -> list[tuple[Any, ...]]:
    wanted = _COLUMNS[kind]
    if format_of(path) == "lines":
        raise InputError(f"{path}: a task is a TSV, CSV, JSONL or Parquet file with columns {', '.join(wanted)}.")
    rows = []
    for line, record in read_records(path):
        missing = [column for column in wanted if record.get(column) is None]
        if missing:
            raise RowError(f"{path}:{line}: has no {missing[0]!r}. A {kind} file has: {', '.join(wanted)}.")
        half = [column for column in wanted if _has_half_pair(record[column])]
        if half:
            raise RowError(f"{path}:{line}: {half[0]!r} has half a surrogate pair. Write whole characters.")
        rows.append((f"{path}:{line}", *(record[column] for column in wanted)))
    if not rows:
        raise InputError(f"{path}: is empty. A {kind} file has: {', '.join(wanted)}.")
    return rows


def _has_half_pair(value: Any) -> bool:
    return isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value)


def _pairs(rows: list[tuple[Any, ...]], *, binary: bool) -> Pairs:
    return Pairs.of((str(a), str(b), _gold(gold, where, binary=binary)) for where, a, b, gold in rows)


def _gold(value: Any, where: str, *, binary: bool) -> float:
    try:
        gold = float(value)
    except (ValueError, TypeError) as error:
        raise RowError(f"{where}: {value!r} is no number. Fix the row.") from error
    if not np.isfinite(gold) or (binary and gold not in (0.0, 1.0)):
        raise RowError(f"{where}: {value!r} is not {'0 or 1' if binary else 'a finite number'}. Fix the row.")
    return gold


def _scored(rows: list[tuple[Any, ...]], embed: Embed, _options: Options) -> Result:
    return score_spearman({"file": _pairs(rows, binary=False)}, embed)


def _geometry(rows: list[tuple[Any, ...]], embed: Embed, _options: Options) -> Result:
    return measure(_pairs(rows, binary=False), embed)


def _paraphrase(rows: list[tuple[Any, ...]], embed: Embed, _options: Options) -> Result:
    return score_paraphrase(_pairs(rows, binary=True), embed)


def _rerank(rows: list[tuple[Any, ...]], embed: Embed, _options: Options) -> Result:
    pairs = _pairs(rows, binary=True)
    vectors = embed(pairs.texts)
    scores = cosine(vectors[: len(rows)], vectors[len(rows) :])
    queries: dict[str, list[int]] = {}
    for i, query in enumerate(pairs.first):
        queries.setdefault(query, []).append(i)
    answered = [rows_of for rows_of in queries.values() if pairs.gold[rows_of].any()]
    if not answered:
        raise InputError("rerank: no query has a candidate with label 1. Check the label column.")
    return {
        "metric": "MAP",
        "score": 100 * float(np.mean([average_precision(pairs.gold[i], scores[i]) for i in answered])),
        "num": len(answered),
        "protocol": "candidates re-ranked by cosine, queries without a relevant candidate left out",
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


def _labelled(rows: list[tuple[Any, ...]], embed: Embed, options: Options) -> Result:
    _check_labels(Counter(str(label) for _, _, label in rows))
    names = sorted({str(label) for _, _, label in rows})
    labels = np.array([names.index(str(label)) for _, _, label in rows])
    vectors = embed([str(text) for _, text, _ in rows])
    outcome = score_nested(
        vectors, labels, classifier=options.classifier, settings=ClassifierSettings(seed=options.seed)
    )
    return {
        "metric": "accuracy",
        "score": 100 * outcome.accuracy,
        "num": len(labels),
        "protocol": f"logistic regression ({options.classifier}), nested 10-fold",
        "labels": names,
    }


def _triplets(rows: list[tuple[Any, ...]], embed: Embed, _options: Options) -> Result:
    for place, *texts in rows:
        if not all(isinstance(text, str) for text in texts):
            raise RowError(f"{place}: something in it is no text. Give one text for each column.")
    return score_triplets([Triplet(anchor, positive, (negative,)) for _, anchor, positive, negative in rows], embed)


_SCORERS = {
    "scored": _scored,
    "geometry": _geometry,
    "paraphrase": _paraphrase,
    "rerank": _rerank,
    "labelled": _labelled,
    "triplets": _triplets,
}
