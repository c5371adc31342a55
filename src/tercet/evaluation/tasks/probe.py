"""A linear classifier or regressor over features that are computed as they are needed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tercet.errors import InputError
from tercet.evaluation.tasks.logistic import (
    ClassifierSettings,
    Features,
    Floats,
    Rows,
    Splits,
    check_finite,
    choose,
    class_values,
    classes_of,
    fit_together,
    predict,
)

_DEFAULTS = ClassifierSettings()


@dataclass(frozen=True)
class Probe:
    """A trained linear classifier or regressor."""

    weights: Tensor
    """[classes, width + 1], the bias last."""
    values: NDArray[Any]
    """The label of each class, or the score that it stands for."""
    is_regressor: bool
    """Whether `values` are scores."""
    dev_score: float
    """Accuracy, or Pearson's correlation of a regressor."""
    l2: float
    """The chosen weight decay."""
    num_epochs: int
    """Epochs that this fit ran."""

    def predict(self, features: Features, rows: Rows) -> NDArray[Any]:
        """The label or the score of each of the rows."""
        levels = self.values.astype(np.float32) if self.is_regressor else None
        out = predict(self.weights[None], _finite(features), rows, levels=levels)[:, 0].numpy()
        return out if self.is_regressor else self.values[out.astype(np.int64)]


def fit_streaming(
    features: Features,
    targets: NDArray[Any],
    *,
    train_rows: Rows,
    dev_rows: Rows,
    levels: tuple[float, ...] | None = None,
    settings: ClassifierSettings = _DEFAULTS,
) -> Probe:
    """Train on features that are computed as they are needed, a few megabytes at a time; all L2 values at once.

    A score is learned as a distribution over `levels`: 3.8 is level 3 with 0.2 and level 4 with 0.8. The loss is the
    cross-entropy with it, the prediction its mean (SentEval's way with STS-B and SICK-R, there with a squared loss).

    Args:
        features: Gives the features [rows, width] of an array of row numbers; called once per row and epoch.
        targets: The label (integer) or score of every row number that is used.
        train_rows: Rows to learn from.
        dev_rows: Rows that stop the training and choose L2.
        levels: For scores: ascending values that span them, such as (0, 1, 2, 3, 4, 5). `None`: labels.
        settings: Grid and training. With millions of rows, `epochs_per_round=1` looks at the dev rows more often.
    """
    if not len(train_rows) or not len(dev_rows):
        raise InputError(f"no rows: {len(train_rows)} to learn from, {len(dev_rows)} for dev. Give some of both.")
    scale = None if levels is None else np.asarray(levels, dtype=np.float32)
    used = np.concatenate([train_rows, dev_rows])
    values: NDArray[Any]
    if scale is None:
        values = class_values(targets[train_rows], "the training rows")
        soft = np.eye(len(values), dtype=np.float32)[classes_of(targets[used], values, "the dev rows")]
    else:
        values = scale
        soft = _soft_labels(targets[used], scale)
    probabilities = np.zeros((len(targets), soft.shape[1]), dtype=np.float32)
    probabilities[used] = soft
    train = np.zeros((len(targets), 1), dtype=np.bool_)
    dev = train.copy()
    train[train_rows], dev[dev_rows] = True, True
    num_fits = len(settings.l2)
    fits = fit_together(
        _finite(features),
        probabilities,
        splits=Splits(train, dev),
        split_of_fit=np.zeros(num_fits, dtype=np.int64),
        l2_of_fit=np.asarray(settings.l2),
        settings=settings,
        levels=scale,
        rows=train_rows,
    )
    best = choose(fits.dev_scores)
    score, epochs = float(fits.dev_scores[best]), int(fits.num_epochs[best])
    return Probe(fits.weights[best], values, scale is not None, score, settings.l2[best], epochs)


def _soft_labels(scores: NDArray[Any], levels: Floats) -> Floats:
    """Each score as weights of the two levels around it, [rows, levels]."""
    outside = ~((scores >= levels[0]) & (scores <= levels[-1]))
    if outside.any():
        raise InputError(f"score out of range: {scores[outside][0]}. The levels are {levels[0]:g} to {levels[-1]:g}.")
    upper = np.searchsorted(levels, scores).clip(1)
    share = (scores - levels[upper - 1]) / (levels[upper] - levels[upper - 1])
    out = np.zeros((len(scores), len(levels)), dtype=np.float32)
    rows = np.arange(len(scores))
    out[rows, upper - 1], out[rows, upper] = 1 - share, share
    return out


def _finite(features: Features) -> Features:
    """The same features, checked as they come."""

    def checked(rows: Rows) -> Floats:
        found = np.asarray(features(rows), dtype=np.float32)
        check_finite(found, rows, "the features")
        return found

    return checked
