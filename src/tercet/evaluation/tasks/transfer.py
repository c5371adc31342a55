"""SentEval's transfer tasks: a logistic regression on frozen vectors."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tercet.data.sets.folder import DataFolder
from tercet.errors import InputError, RowError
from tercet.evaluation.metrics import Array, f1
from tercet.evaluation.tasks.classifier import Outcome, score_folds, score_nested, score_split
from tercet.evaluation.tasks.logistic import ClassifierSettings
from tercet.evaluation.tasks.task import Embed, Options, Result, Task

_TREC_LABELS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

# The files of the two classes, SentEval's label 0 first.
_TWO_FILES = {
    "MR": ("rt-polarity.neg", "rt-polarity.pos"),
    "CR": ("custrev.neg", "custrev.pos"),
    "SUBJ": ("subj.subjective", "subj.objective"),
    "MPQA": ("mpqa.neg", "mpqa.pos"),
}


@dataclass(frozen=True)
class Labelled:
    """Texts and their labels."""

    texts: list[str]
    labels: Array

    @classmethod
    def by_length(cls, rows: list[tuple[str, int]]) -> "Labelled":
        """Order rows by number of words, then label, as SentEval does before it draws folds."""
        if not rows:
            raise InputError("a transfer task has no rows. Fetch its files again.")
        ordered = sorted(rows, key=lambda row: (len(row[0].split()), row[1]))
        return cls([text for text, _ in ordered], np.array([label for _, label in ordered]))


def _run_two_files(name: str) -> Callable[[DataFolder, Embed, Options], Result]:
    def run(data: DataFolder, embed: Embed, options: Options) -> Result:
        rows = [
            (line.strip(), label)
            for label, file in enumerate(_TWO_FILES[name])
            for _, line in data.lines(f"senteval/{name}/{file}", encoding="latin-1")
        ]
        labelled = Labelled.by_length(rows)
        outcome = score_nested(
            embed(labelled.texts), labelled.labels, classifier=options.classifier, settings=_settings(options)
        )
        return _result(outcome, len(rows), "nested 10-fold: outer folds are scored, inner folds pick L2", options)

    return run


def _run_sst(data: DataFolder, embed: Embed, options: Options) -> Result:
    train, dev, test = (_read_sst(data, split) for split in ("train", "dev", "test"))
    outcome = score_split(
        embed(train.texts),
        train.labels,
        dev_features=embed(dev.texts),
        dev_labels=dev.labels,
        test_features=embed(test.texts),
        test_labels=test.labels,
        classifier=options.classifier,
        settings=_settings(options),
    )
    return _result(outcome, len(test.texts), "fixed split: dev picks L2, test is scored", options)


def _read_sst(data: DataFolder, split: str) -> Labelled:
    rows = data.columns(f"senteval/SST/binary/sentiment-{split}", 2)
    return Labelled.by_length([(c[0].strip(), _binary(c[1], where)) for where, c in rows])


def _run_trec(data: DataFolder, embed: Embed, options: Options) -> Result:
    train, test = (_read_trec(data, name) for name in ("train_5500.label", "TREC_10.label"))
    outcome = score_folds(
        embed(train.texts),
        train.labels,
        test_features=embed(test.texts),
        test_labels=test.labels,
        classifier=options.classifier,
        settings=_settings(options),
    )
    return _result(outcome, len(test.texts), _FOLDS_THEN_TEST, options)


def _read_trec(data: DataFolder, name: str) -> Labelled:
    rows = []
    for where, line in data.lines(f"senteval/TREC/{name}", encoding="latin-1"):
        label, _, text = line.partition(" ")
        coarse = label.split(":")[0]
        if coarse not in _TREC_LABELS:
            raise RowError(f"{where}: the label {label!r} is none of {', '.join(_TREC_LABELS)}. Fetch the file again.")
        rows.append((text.strip(), _TREC_LABELS.index(coarse)))
    return Labelled.by_length(rows)


def _run_mrpc(data: DataFolder, embed: Embed, options: Options) -> Result:
    (train, train_labels), (test, test_labels) = (_read_mrpc(data, embed, split) for split in ("train", "test"))
    outcome = score_folds(
        train,
        train_labels,
        test_features=test,
        test_labels=test_labels,
        classifier=options.classifier,
        settings=_settings(options),
    )
    result = _result(outcome, len(test_labels), f"features |u-v|, u*v; {_FOLDS_THEN_TEST}", options)
    return result | {"f1": 100 * f1(outcome.predictions, test_labels)}


def _read_mrpc(data: DataFolder, embed: Embed, split: str) -> tuple[Array, Array]:
    rows = data.columns(f"senteval/MRPC/msr_paraphrase_{split}.txt", 5)
    next(rows, None)
    triples = [(c[3].strip(), c[4].strip(), _binary(c[0], where)) for where, c in rows]
    triples.sort(key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]))
    if not triples:
        raise InputError(f"msr_paraphrase_{split}.txt: has no rows. Fetch the file again.")
    first, second, labels = zip(*triples, strict=True)
    vectors = embed([*first, *second])
    u, v = vectors[: len(first)], vectors[len(first) :]
    return np.concatenate([np.abs(u - v), u * v], axis=1), np.array(labels)


_FOLDS_THEN_TEST = "10 folds of the training set pick L2, 5% held out of it stop the last fit, test is scored"


def _binary(text: str, where: str) -> int:
    if text.strip() not in ("0", "1"):
        raise RowError(f"{where}: the label {text!r} is not 0 or 1. Fetch the file again.")
    return int(text)


def _settings(options: Options) -> ClassifierSettings:
    return ClassifierSettings(seed=options.seed)


def _result(outcome: Outcome, num: int, protocol: str, options: Options) -> Result:
    return {
        "metric": "accuracy",
        "score": 100 * outcome.accuracy,
        "num": num,
        "protocol": f"logistic regression ({options.classifier}), {protocol}",
        "dev": 100 * outcome.dev_accuracy,
        "l2": list(outcome.l2),
        "num_fits": outcome.num_fits,
        "seed": options.seed,
    }


TASKS = [
    *(Task(name, _run_two_files(name)) for name in _TWO_FILES),
    Task("SST2", _run_sst),
    Task("TREC", _run_trec),
    Task("MRPC", _run_mrpc),
]
