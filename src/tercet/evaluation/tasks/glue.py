"""SentGLUE: GLUE's tasks on frozen sentence vectors; dev sets are scored.

Pair features are [u, v, |u-v|, u*v] where order matters (MNLI, QNLI, RTE) and [|u-v|, u*v] where it does not. They are
computed a batch at a time, so that a training set of any size needs memory for its vectors only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tercet.data.rows.checks import BadField, any_text
from tercet.data.sets.folder import DataFolder, MissingDataError, number
from tercet.encoder.model.arrays import Vectors
from tercet.errors import InputError, RowError
from tercet.evaluation.metrics import Array, accuracy, cosine, f1, matthews, pearson, spearman
from tercet.evaluation.tasks.logistic import ClassifierSettings
from tercet.evaluation.tasks.probe import fit_streaming
from tercet.evaluation.tasks.task import Embed, Options, Result, Task
from tercet.storage.documents import parse_json
from tercet.storage.files import read_json

_HELD_OUT = 0.05
_ENTAILMENT = {"entailment": 0, "not_entailment": 1, "0": 0, "1": 1}
_BINARY = {"0": 0, "1": 1}


@dataclass(frozen=True)
class _Glue:
    """One of GLUE's tasks: where its rows are and what is measured."""

    folder: str
    dev: str
    text: tuple[str, ...]
    """The columns with the text or the two texts."""
    label: str
    labels: dict[str, int] | None
    """Label words and their numbers; None for scores from 0 to 5."""
    metric: str = "accuracy"
    ordered: bool = False
    """Whether the order of a pair matters."""
    columns: tuple[str, ...] | None = None
    """The columns of a file without a header."""
    also: dict[str, Callable[[Array, Array], float]] = field(default_factory=dict)


_MNLI = {"entailment": 0, "neutral": 1, "contradiction": 2}
_PAIR = ("sentence1", "sentence2")

_GLUE = {
    "glue-CoLA": _Glue(
        "CoLA", "dev.tsv", ("sentence",), "label", _BINARY, "matthews", columns=("source", "label", "mark", "sentence")
    ),
    "glue-SST2": _Glue("SST-2", "dev.tsv", ("sentence",), "label", _BINARY),
    "glue-MRPC": _Glue("MRPC", "dev.tsv", ("#1 String", "#2 String"), "Quality", _BINARY, also={"f1": f1}),
    "glue-STSB": _Glue("STS-B", "dev.tsv", _PAIR, "score", None, "spearman"),
    "glue-QQP": _Glue("QQP", "dev.tsv", ("question1", "question2"), "is_duplicate", _BINARY, also={"f1": f1}),
    "glue-MNLI-m": _Glue("MNLI", "dev_matched.tsv", _PAIR, "gold_label", _MNLI, ordered=True),
    "glue-MNLI-mm": _Glue("MNLI", "dev_mismatched.tsv", _PAIR, "gold_label", _MNLI, ordered=True),
    "glue-QNLI": _Glue("QNLI", "dev.tsv", ("question", "sentence"), "label", _ENTAILMENT, ordered=True),
    "glue-RTE": _Glue("RTE", "dev.tsv", _PAIR, "label", _ENTAILMENT, ordered=True),
}
_METRICS = {"accuracy": accuracy, "matthews": matthews}


@dataclass(frozen=True)
class _Set:
    """The rows of one file: texts, or pairs of texts, and their labels or scores."""

    texts: tuple[list[str], ...]
    gold: Array
    num_skipped: int


def _read(data: DataFolder, glue: _Glue, name: str) -> _Set:
    rows, num_skipped = [], 0
    for where, record in _records(data, glue, name):
        if record is None:
            num_skipped += 1
        else:
            rows.append((*(record[column] for column in glue.text), _gold(record[glue.label], glue, where)))
    if not rows:
        raise InputError(f"{name}: has no rows. Fetch the file again.")
    *texts, gold = (list(column) for column in zip(*rows, strict=True))
    return _Set(tuple(texts), np.array(gold), num_skipped)


def _records(data: DataFolder, glue: _Glue, name: str) -> Iterator[tuple[str, dict[str, str] | None]]:
    """Yield the records of a GLUE file with GLUE's column names: TSV, JSONL, or JSON with text_a and text_b.

    QQP's original files have a few rows that are cut off: None stands for them.
    """
    others = (("text_a", "text_b"), _PAIR)
    renamed = {"label": glue.label} | {old: new for pair in others for old, new in zip(pair, glue.text, strict=False)}
    if name.endswith((".json", ".jsonl")):
        for where, record in _json_records(data, name):
            known = _complete({renamed.get(key, key): value for key, value in record.items()}, glue, where)
            yield where, known | {glue.label: str(known[glue.label])} | _texts(known, glue, where)
        return
    header = glue.columns
    if name.endswith("_rmib.txt"):
        header = (*glue.text, glue.label)
    lenient = glue.folder == "QQP"
    for where, columns in data.columns(name, 1 if lenient else len(header) if header else None):
        if header is None:
            header = tuple(columns)
            continue
        if lenient and len(columns) < len(header):
            yield where, None
            continue
        record = dict(zip(header, columns, strict=False))
        known = record if glue.text[0] in record else {renamed.get(key, key): value for key, value in record.items()}
        yield where, _complete(known, glue, where)


def _json_records(data: DataFolder, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if name.endswith(".json"):
        for key, record in read_json(data.path(name), kind=dict, fix="Fetch the file again.").items():
            if not isinstance(record, dict):
                raise RowError(f"{name}:{key}: is no object. Fetch the file again.")
            yield f"{name}:{key}", record
        return
    for where, line in data.lines(name):
        try:
            record = parse_json(line, kind=dict)
        except ValueError as error:
            raise RowError(f"{where}: is not JSON ({error}). Fetch the file again.") from error
        yield where, record


def _texts(record: dict[str, Any], glue: _Glue, where: str) -> dict[str, str]:
    try:
        return {column: any_text(record[column], column) for column in glue.text}
    except BadField as error:
        raise RowError(f"{where}: {error}") from error


def _complete(record: dict[str, Any], glue: _Glue, where: str) -> dict[str, Any]:
    for column in (*glue.text, glue.label):
        if column not in record:
            raise RowError(f"{where}: has no column {column!r}. It has: {', '.join(record)}.")
    return record


def _gold(text: str, glue: _Glue, where: str) -> float | int:
    if glue.labels is None:
        return number(text, where, low=0, high=5)
    if text not in glue.labels:
        raise RowError(f"{where}: the label {text!r} is none of {', '.join(glue.labels)}. Fetch the file again.")
    return glue.labels[text]


def _files(data: DataFolder, glue: _Glue) -> tuple[str | None, str]:
    """Return the training file, if there is one, and the dev file."""
    folder, sample = f"glue/{glue.folder}", f"glue_train_sample/{glue.folder}"
    train = [f"{folder}/train.tsv", f"{folder}/train.jsonl", f"{folder}/train_rmib.txt", f"{sample}/train.json"]
    dev = [f"{folder}/{glue.dev}", *([f"{sample}/dev.json"] if glue.folder == "QQP" else [])]
    found = next((name for name in dev if data.has(name)), None)
    if found is None:
        raise MissingDataError(f"{dev[0]}: not in {data.root}. Put the file there, or leave the task out.")
    return next((name for name in train if data.has(name)), None), found


def _features(vectors: tuple[Vectors, ...], *, ordered: bool) -> Callable[[Array], Array]:
    """Return the function that makes the features of some rows."""

    def make(rows: Array) -> Array:
        if len(vectors) == 1:
            return np.asarray(vectors[0][rows])
        u, v = vectors[0][rows], vectors[1][rows]
        both = (np.abs(u - v), u * v)
        return np.concatenate((u, v, *both) if ordered else both, axis=1)

    return make


def _run(name: str, glue: _Glue) -> Callable[[DataFolder, Embed, Options], Result]:
    def run(data: DataFolder, embed: Embed, options: Options) -> Result:
        train_name, dev_name = _files(data, glue)
        dev = _read(data, glue, dev_name)
        result: Result = {"num": len(dev.gold), "dev": dev_name, "train": train_name, "num_train": 0}
        dev_vectors = tuple(embed(texts) for texts in dev.texts)
        if glue.labels is None:
            cosines = cosine(*dev_vectors)
            result["cosine_spearman"] = 100 * spearman(cosines, dev.gold)
        if train_name is None:
            if glue.labels is not None:
                raise MissingDataError(f"glue/{glue.folder}/train.tsv: not in {data.root}. {name} needs training rows.")
            protocol = "cosine alone: there is no training file"
            result["note"] = protocol
            return {"metric": "spearman", "score": result["cosine_spearman"], "protocol": protocol} | result
        train = _read(data, glue, train_name)
        predicted = _fit_and_predict(glue, train, dev_vectors, embed, options)
        result |= {"num_train": len(train.gold), "num_skipped": train.num_skipped + dev.num_skipped}
        samples = [name for name in (train_name, dev_name) if not name.startswith("glue/")]
        if samples:
            result["note"] = f"not GLUE's own files: {', '.join(samples)}"
        features = "u" if len(glue.text) == 1 else "u, v, |u-v|, u*v" if glue.ordered else "|u-v|, u*v"
        protocol = f"linear classifier on [{features}], 5% of the training rows stop it and pick L2, dev is scored"
        score = spearman(predicted, dev.gold) if glue.labels is None else _METRICS[glue.metric](predicted, dev.gold)
        if glue.labels is None:
            result["pearson"] = 100 * pearson(predicted, dev.gold)
        result |= {key: 100 * metric(predicted, dev.gold) for key, metric in glue.also.items()}
        return {"metric": glue.metric, "score": 100 * score, "protocol": protocol, "seed": options.seed} | result

    return run


def _fit_and_predict(
    glue: _Glue, train: _Set, dev_vectors: tuple[Vectors, ...], embed: Embed, options: Options
) -> Array:
    features = _features(tuple(embed(texts) for texts in train.texts), ordered=glue.ordered)
    rows = np.random.RandomState(options.seed).permutation(len(train.gold))
    num_held = max(1, round(_HELD_OUT * len(rows)))
    probe = fit_streaming(
        features,
        train.gold,
        train_rows=rows[num_held:],
        dev_rows=rows[:num_held],
        levels=(0, 1, 2, 3, 4, 5) if glue.labels is None else None,
        settings=ClassifierSettings(seed=options.seed),
    )
    dev_features = _features(dev_vectors, ordered=glue.ordered)
    return probe.predict(dev_features, np.arange(len(dev_vectors[0])))


TASKS = [Task(name, _run(name, glue)) for name, glue in _GLUE.items()]
