"""SentEval's transfer classifier: how well a logistic regression on frozen features does, by three protocols.

| function | protocol | fits |
|---|---|---|
| `score_nested` | outer folds are the test sets, inner folds pick L2 (MR, CR, SUBJ, MPQA) | 410 |
| `score_folds` | folds of the training set pick L2, a test set is scored (TREC, MRPC) | 41 |
| `score_split` | a dev set picks L2, a test set is scored (SST-2) | 4 |

`probe` is for training sets whose features do not fit in memory, and for scores instead of labels.

Folds, first weights, grid, stopping rule and the choice of L2 are SentEval's. Different by design: fits with
different rows (the folds) share one order of rows, so a fit sees *about* `batch` rows of its own in each step; fits
over the same rows, and single ones (all of `score_split`, the last fit of `score_folds`), see SentEval's very batches.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tercet.errors import InputError, SettingError
from tercet.evaluation.tasks.logistic import (
    ClassifierSettings,
    Fits,
    Floats,
    Labels,
    Mask,
    Rows,
    Splits,
    check_finite,
    choose,
    class_values,
    classes_of,
    fit_together,
    predict,
)
from tercet.storage.extras import require

_DEFAULTS = ClassifierSettings()


@dataclass(frozen=True)
class Outcome:
    """What a protocol found."""

    accuracy: float
    """Share of right answers in the test set, or the mean of it over the outer folds; 0 to 1."""
    dev_accuracy: float
    """The dev accuracy of the chosen L2 (its mean over the folds, and over the outer folds); 0 to 1."""
    predictions: Labels
    """The label given to each test row; in the nested protocol, to each row when its fold was the test set."""
    l2: tuple[float, ...]
    """The chosen weight decay: one, or one for each outer fold."""
    num_fits: int
    """Number of classifiers trained."""


def stratified_folds(labels: Labels, *, folds: int = 10, seed: int = 1111) -> Rows:
    """The fold of each row, every label spread evenly and at random.

    The same folds as scikit-learn's `StratifiedKFold(folds, shuffle=True, random_state=seed)`.
    """
    values, first, counts = np.unique(labels, return_index=True, return_counts=True)
    if folds < 2:
        raise SettingError(f"too few folds: folds = {folds}. Use 2 or more.")
    if counts.max() < folds:
        raise InputError(
            f"too few rows for {folds} folds: {counts.max()} with label {values[counts.argmax()]}. Use fewer folds."
        )
    if counts.min() < 2:
        raise InputError(f"label in a single row: {values[counts.argmin()]}. It would be tested but never learned.")
    by_appearance = np.argsort(first)
    ordered = np.repeat(np.arange(len(values)), counts[by_appearance])
    rng = np.random.RandomState(seed)
    fold_of_row = np.empty(len(labels), dtype=np.int64)
    for position, value in enumerate(values[by_appearance]):
        sizes = [np.count_nonzero(ordered[fold::folds] == position) for fold in range(folds)]
        fold_of_class = np.repeat(np.arange(folds), sizes)
        rng.shuffle(fold_of_class)
        fold_of_row[labels == value] = fold_of_class
    return fold_of_row


def score_nested(
    features: Floats, labels: Labels, *, classifier: str = "batched", settings: ClassifierSettings = _DEFAULTS
) -> Outcome:
    """Test every outer fold with the L2 that inner folds of the other rows choose.

    Args:
        features: [rows, width].
        labels: [rows], two or more different integers.
        classifier: `batched` (Adam with early stopping, as SentEval) or `sklearn` (the optimum, by L-BFGS).
        settings: Grid, folds and training.
    """
    _check_settings(classifier, settings)
    features = _checked(features, labels, "the data")
    values = class_values(labels, "the data")
    classes = classes_of(labels, values, "the data")
    outer = stratified_folds(labels, folds=settings.folds, seed=settings.seed)
    test = outer[:, None] == np.arange(settings.folds)
    inner = [_inner_folds(labels, np.flatnonzero(~test[:, fold]), settings) for fold in range(settings.folds)]
    splits = Splits(np.concatenate([s.train for s in inner], axis=1), np.concatenate([s.dev for s in inner], axis=1))
    scan = _scan(classifier, features, classes, splits, settings).dev_scores
    means = scan.reshape(settings.folds, settings.folds, len(settings.l2)).mean(axis=1)
    chosen = [choose(row) for row in means]
    l2 = tuple(settings.l2[index] for index in chosen)
    fits = _refit(classifier, features, classes, ~test, l2, settings)
    by_fold = _predict(fits.weights, features)
    guesses = by_fold[np.arange(len(classes)), outer]
    return Outcome(
        accuracy=float(np.mean([np.mean((guesses == classes)[test[:, fold]]) for fold in range(settings.folds)])),
        dev_accuracy=float(np.mean([row[index] for row, index in zip(means, chosen, strict=True)])),
        predictions=values[guesses],
        l2=l2,
        num_fits=scan.size + settings.folds,
    )


def score_folds(
    features: Floats,
    labels: Labels,
    *,
    test_features: Floats,
    test_labels: Labels,
    classifier: str = "batched",
    settings: ClassifierSettings = _DEFAULTS,
) -> Outcome:
    """Choose L2 by folds of the training set, train again with a part held out for stopping, score the test set."""
    _check_settings(classifier, settings)
    features = _checked(features, labels, "the training set")
    values = class_values(labels, "the training set")
    classes = classes_of(labels, values, "the training set")
    test_features = _checked(test_features, test_labels, "the test set", like=features)
    test_classes = classes_of(test_labels, values, "the test set")
    splits = _inner_folds(labels, np.arange(len(labels)), settings)
    scan = _scan(classifier, features, classes, splits, settings).dev_scores
    means = scan.reshape(settings.folds, len(settings.l2)).mean(axis=0)
    l2 = settings.l2[choose(means)]
    fits = _refit(classifier, features, classes, np.ones((len(classes), 1), dtype=np.bool_), (l2,), settings)
    guesses = _predict(fits.weights, test_features)[:, 0]
    accuracy = float(np.mean(guesses == test_classes))
    return Outcome(accuracy, float(means[choose(means)]), values[guesses], (l2,), scan.size + 1)


def score_split(
    features: Floats,
    labels: Labels,
    *,
    dev_features: Floats,
    dev_labels: Labels,
    test_features: Floats,
    test_labels: Labels,
    classifier: str = "batched",
    settings: ClassifierSettings = _DEFAULTS,
) -> Outcome:
    """Choose L2 by the dev set, which also stops the training, and score the test set.

    SentEval trains once more with the chosen L2, which gives the same weights again; here they are kept instead.
    """
    _check_settings(classifier, settings)
    features = _checked(features, labels, "the training set")
    values = class_values(labels, "the training set")
    classes = classes_of(labels, values, "the training set")
    dev_features = _checked(dev_features, dev_labels, "the dev set", like=features)
    dev_classes = classes_of(dev_labels, values, "the dev set")
    test_features = _checked(test_features, test_labels, "the test set", like=features)
    test_classes = classes_of(test_labels, values, "the test set")
    train = np.arange(len(classes) + len(dev_classes))[:, None] < len(classes)
    both, both_classes = np.concatenate([features, dev_features]), np.concatenate([classes, dev_classes])
    fits = _scan(classifier, both, both_classes, Splits(train, ~train), settings)
    best = choose(fits.dev_scores)
    guesses = _predict(fits.weights[best : best + 1], test_features)[:, 0]
    accuracy = float(np.mean(guesses == test_classes))
    return Outcome(accuracy, float(fits.dev_scores[best]), values[guesses], (settings.l2[best],), len(settings.l2))


def _scan(classifier: str, features: Floats, classes: Rows, splits: Splits, settings: ClassifierSettings) -> Fits:
    """Fit every split with every L2, the L2 values of a split side by side."""
    num_splits, num_l2 = splits.train.shape[1], len(settings.l2)
    split_of_fit = np.repeat(np.arange(num_splits), num_l2)
    l2_of_fit = np.tile(np.asarray(settings.l2), num_splits)
    if classifier == "sklearn":
        return _fit_sklearn(features, classes, splits, split_of_fit, l2_of_fit)
    return fit_together(
        lambda rows: features[rows],
        _one_hot(classes),
        splits=splits,
        split_of_fit=split_of_fit,
        l2_of_fit=l2_of_fit,
        settings=settings,
    )


def _refit(
    classifier: str,
    features: Floats,
    classes: Rows,
    train: Mask,
    l2: tuple[float, ...],
    settings: ClassifierSettings,
) -> Fits:
    """Fit each column of `train` with its L2; a part is held out for stopping where the classifier needs that."""
    split_of_fit, l2_of_fit = np.arange(len(l2)), np.asarray(l2)
    if classifier == "sklearn":
        return _fit_sklearn(features, classes, Splits(train, train), split_of_fit, l2_of_fit)
    kept, held = train.copy(), np.zeros_like(train)
    for split in split_of_fit:
        rng = np.random.RandomState(settings.seed)
        rows = rng.permutation(np.flatnonzero(train[:, split]))
        num_held = max(1, int(settings.held_out * len(rows)))
        held[rows[:num_held], split], kept[rows[:num_held], split] = True, False
    return fit_together(
        lambda rows: features[rows],
        _one_hot(classes),
        splits=Splits(kept, held),
        split_of_fit=split_of_fit,
        l2_of_fit=l2_of_fit,
        settings=settings,
        # A single fit goes on as SentEval does: from the held-out draw's order, with the same generator.
        rows=rows[num_held:] if len(l2) == 1 else None,
        rng=rng if len(l2) == 1 else None,
    )


def _fit_sklearn(
    features: Floats, classes: Rows, splits: Splits, split_of_fit: Rows, l2_of_fit: NDArray[np.float64]
) -> Fits:
    """The same fits by scikit-learn, one after another and to the optimum."""
    require("sklearn.linear_model", "sklearn", needed_by="classifier sklearn")
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    num_classes = int(classes.max()) + 1
    weights = torch.zeros(len(split_of_fit), num_classes, features.shape[1] + 1)
    scores = np.empty(len(split_of_fit))
    for fit, (split, l2) in enumerate(zip(split_of_fit, l2_of_fit, strict=True)):
        train, dev = splits.train[:, split], splits.dev[:, split]
        # The decay is of a mean loss; one vector for two classes carries half the penalty of two.
        strength = l2 * np.count_nonzero(train) / (2 if num_classes == 2 else 1)
        model = LogisticRegression(C=1 / strength if strength else np.inf, max_iter=10_000)
        with threadpool_limits(1):  # waiting threads make it up to ten times slower on a busy machine
            model.fit(features[train].astype(np.float64), classes[train])
        learned = torch.from_numpy(np.concatenate([model.coef_, model.intercept_[:, None]], axis=1))
        weights[fit, -len(learned) :] = learned.float()
        scores[fit] = np.mean(_predict(weights[fit : fit + 1], features[dev])[:, 0] == classes[dev])
    return Fits(weights, scores, np.zeros(len(split_of_fit), dtype=np.int64))


def _predict(weights: Tensor, features: Floats) -> Rows:
    """The class that each fit gives each row, [rows, fits]."""
    return predict(weights, lambda rows: features[rows], np.arange(len(features))).numpy().astype(np.int64)


def _inner_folds(labels: Labels, rows: Rows, settings: ClassifierSettings) -> Splits:
    """Folds of the given rows: each is one split's dev set, the others its training set."""
    fold_of_row = stratified_folds(labels[rows], folds=settings.folds, seed=settings.seed)
    train = np.zeros((len(labels), settings.folds), dtype=np.bool_)
    dev = train.copy()
    dev[rows] = fold_of_row[:, None] == np.arange(settings.folds)
    train[rows] = ~dev[rows]
    return Splits(train, dev)


def _one_hot(classes: Rows) -> Floats:
    return np.eye(int(classes.max()) + 1, dtype=np.float32)[classes]


def _check_settings(classifier: str, settings: ClassifierSettings) -> None:
    if classifier not in ("batched", "sklearn"):
        raise SettingError(f"unknown classifier: {classifier!r}. Use batched or sklearn.")
    if not settings.l2:
        raise SettingError("empty grid: l2. Give at least one weight decay.")


def _checked(features: Floats, labels: Labels, where: str, like: Floats | None = None) -> Floats:
    """The features as float32, after a look at their shape and values."""
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise InputError(
            f"features {features.shape} and labels {labels.shape} do not fit: {where}. "
            "Give features [rows, width] and as many labels."
        )
    if like is not None and like.shape[1] != features.shape[1]:
        raise InputError(
            f"features of width {features.shape[1]}: {where}. The training set has {like.shape[1]}; use one encoder."
        )
    features = np.ascontiguousarray(features, dtype=np.float32)
    check_finite(features, np.arange(len(features)), where)
    return features
