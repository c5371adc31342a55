"""Many logistic regressions over the same rows, trained by Adam as one tensor problem.

A fit is one (training rows, dev rows, L2) combination. All fits share the mini-batches: a batch is cut from one order
of all rows, a mask says which of its rows belong to which fit, and one matrix product serves every fit. The logits are
taken relative to class 0, which saves a product where there are two classes; the weights, their Adam moments and their
decay stay one vector per class, as in a plain softmax layer.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tercet.errors import InputError

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Labels = NDArray[np.integer[Any]]
Features = Callable[[Rows], Floats]
"""Features of the given rows, [rows, width]: looked up or computed on the fly."""

_CHUNK_BYTES = 2**24


@dataclass(frozen=True, kw_only=True)
class ClassifierSettings:
    """How the transfer classifier is trained; the defaults are SentEval's full configuration."""

    l2: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2)
    """The grid of weight decays (added to the gradient; the loss is the mean over the batch)."""
    folds: int = 10
    """Number of outer and of inner folds."""
    held_out: float = 0.05
    """Share of the rows that the last fit of the fold protocols keeps for early stopping."""
    batch: int = 64
    """Rows of its own that a fit sees in a step (on average, where fits with different rows share a batch)."""
    learning_rate: float = 1e-3
    """Adam's rate."""
    max_epochs: int = 200
    """No round starts after this many epochs."""
    epochs_per_round: int = 4
    """Epochs between two looks at the dev rows."""
    tenacity: int = 5
    """A fit stops when its dev score has failed to improve more often than this, counted over the whole fit."""
    seed: int = 1111
    """Seed of the folds, the first weights and the order of rows."""


@dataclass(frozen=True)
class Fits:
    """The best weights on dev of each fit, [fits, classes, width + 1] with the bias last."""

    weights: Tensor
    dev_scores: NDArray[np.float64]
    num_epochs: Rows


@dataclass(frozen=True)
class Splits:
    """Which rows each split trains on and is scored on, [rows, splits] each."""

    train: Mask
    dev: Mask


def improve(scores: Tensor, best: Tensor, failures: Tensor, *, tenacity: int) -> tuple[Tensor, Tensor]:
    """Update `best` and `failures` in place; return which fits improved and which stop. `failures` never resets."""
    improved = scores > best
    best[improved] = scores[improved]
    failures += ~improved
    return improved, failures > tenacity


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The products are small: threads that wait for each other cost more than they bring where others compute too.

    It also makes the results independent of the number of cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@_one_thread()
def fit_together(
    features: Features,
    targets: Floats,
    *,
    splits: Splits,
    split_of_fit: Rows,
    l2_of_fit: NDArray[np.float64],
    settings: ClassifierSettings,
    levels: Floats | None = None,
    rows: Rows | None = None,
    rng: np.random.RandomState | None = None,
) -> Fits:
    """Train all fits at once and keep each one's best weights on its dev rows.

    Memory is about six times the weights, [fits, classes, width], a chunk of features, and some bytes per row and fit.

    Args:
        features: Gives the features of rows.
        targets: Each row's probability of each class, [rows, classes].
        splits: The training and dev rows of each split.
        split_of_fit: The split of each fit.
        l2_of_fit: The weight decay of each fit.
        settings: Batch, rates and stopping.
        levels: The classes' values, if they are the levels of a score: the dev score is then Pearson's correlation of
            the expected value. `None`: the classes are labels and the dev score is accuracy.
        rows: The order of the training rows that the epochs shuffle; default: ascending.
        rng: Source of the shuffles; default: a new one from the seed.
    """
    rows = np.flatnonzero(splits.train.any(axis=1)) if rows is None else rows
    rng = np.random.RandomState(settings.seed) if rng is None else rng
    batch = max(1, round(settings.batch * len(rows) / splits.train.sum(axis=0)[split_of_fit].mean()))
    dev_rows = np.flatnonzero(splits.dev.any(axis=1))
    num_fits, num_classes = len(split_of_fit), targets.shape[1]
    trainer = _Trainer(features(rows[:1]).shape[1], num_classes, l2_of_fit, settings)
    active = torch.arange(num_fits)
    best_weights = trainer.weights.detach().clone()
    best = torch.full((num_fits,), -torch.inf, dtype=torch.float64)
    failures, num_epochs = torch.zeros(num_fits, dtype=torch.int64), np.zeros(num_fits, dtype=np.int64)
    epoch = 0
    while len(active) and epoch <= settings.max_epochs:
        split = split_of_fit[active.numpy()]
        for _ in range(settings.epochs_per_round):
            trainer.epoch(features, targets, splits.train, split, rows[rng.permutation(len(rows))], batch)
        epoch += settings.epochs_per_round
        num_epochs[active.numpy()] = epoch
        values = predict(trainer.weights.detach().transpose(0, 1), features, dev_rows, levels=levels)
        scores = _dev_scores(values, targets[dev_rows], splits.dev[dev_rows][:, split], levels)
        active_best, active_failures = best[active], failures[active]
        improved, stopped = improve(scores, active_best, active_failures, tenacity=settings.tenacity)
        best[active], failures[active] = active_best, active_failures
        best_weights[:, active[improved]] = trainer.weights.detach()[:, improved]
        if stopped.any():
            trainer.keep(~stopped)
            active = active[~stopped]
    return Fits(best_weights.transpose(0, 1), best.numpy(), num_epochs)


class _Trainer:
    """Weights [classes, fits, width + 1] and their Adam state."""

    def __init__(self, width: int, num_classes: int, l2: NDArray[np.float64], settings: ClassifierSettings) -> None:
        generator = torch.Generator().manual_seed(settings.seed)
        bound = width**-0.5
        # The draws of torch.nn.Linear(width, classes) after manual_seed(seed): weight first, then bias.
        weight = torch.empty(num_classes, width).uniform_(-bound, bound, generator=generator)
        bias = torch.empty(num_classes, 1).uniform_(-bound, bound, generator=generator)
        first = torch.cat([weight, bias], dim=1)
        self.weights = torch.nn.Parameter(first[:, None].repeat(1, len(l2), 1))
        self.weights.grad = self.grad = torch.zeros_like(self.weights)
        self.l2 = torch.from_numpy(l2).float()[:, None]
        self.optimizer = torch.optim.Adam([self.weights], lr=settings.learning_rate, fused=True)

    def epoch(self, features: Features, targets: Floats, train: Mask, split: Rows, order: Rows, num_rows: int) -> None:
        """One pass over the rows of `order` in batches of `num_rows`; features are made some batches at a time."""
        width = self.weights.shape[2]
        chunk = num_rows * max(1, _CHUNK_BYTES // (4 * num_rows * (width + len(split))))
        for start in range(0, len(order), chunk):
            rows = order[start : start + chunk]
            x = with_ones(features(rows))
            y = torch.from_numpy(targets[rows, 1:])
            mask = torch.from_numpy(train[rows][:, split]).float()
            for first in range(0, len(rows), num_rows):
                part = slice(first, first + num_rows)
                self.step(x[part], y[part], mask[part])

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, mask: Tensor) -> None:
        """One Adam step of every fit on its own rows of the batch."""
        weights, grad = self.weights, self.grad
        share = mask / mask.sum(dim=0).clamp_(min=1)
        logits = x @ (weights[1:] - weights[0]).flatten(0, 1).T
        residual = _probabilities(logits.view(len(x), -1, mask.shape[1])).sub_(y[:, :, None]).mul_(share[:, None])
        slope = (residual.flatten(1).T @ x).view_as(weights[1:])
        torch.addcmul(slope, weights[1:], self.l2, out=grad[1:])
        torch.addcmul(slope.sum(dim=0).neg_(), weights[0], self.l2, out=grad[0])
        self.optimizer.step()

    def keep(self, fits: Tensor) -> None:
        """Drop all but the given fits."""
        state = self.optimizer.state[self.weights]
        for moment in ("exp_avg", "exp_avg_sq"):
            state[moment] = state[moment][:, fits]
        self.weights.grad = None
        self.weights.data = self.weights.data[:, fits]
        self.weights.grad = self.grad = torch.zeros_like(self.weights)
        self.l2 = self.l2[fits]


def _probabilities(logits: Tensor) -> Tensor:
    """Probabilities of the classes 1, 2, ... from their logits less that of class 0, [rows, classes - 1, fits]."""
    if logits.shape[1] == 1:
        return logits.sigmoid()
    zero = logits.new_zeros(len(logits), 1, logits.shape[2])
    return torch.cat([zero, logits], dim=1).softmax(dim=1)[:, 1:]


def with_ones(features: Floats) -> Tensor:
    """Append the column that the bias multiplies."""
    out = np.ones((features.shape[0], features.shape[1] + 1), dtype=np.float32)
    out[:, :-1] = features
    return torch.from_numpy(out)


@torch.no_grad()
def predict(weights: Tensor, features: Features, rows: Rows, *, levels: Floats | None = None) -> Tensor:
    """The class (or, with `levels`, the expected value) that each fit gives each row, [rows, fits]."""
    num_fits, num_classes, width = weights.shape
    columns = weights.transpose(0, 1).reshape(-1, width).T
    chunk = max(1, _CHUNK_BYTES // (4 * (width + num_fits * num_classes)))
    out = []
    for start in range(0, len(rows), chunk):
        logits = (with_ones(features(rows[start : start + chunk])) @ columns).view(-1, num_classes, num_fits)
        if levels is not None:
            out.append(torch.einsum("ncf,c->nf", logits.softmax(dim=1), torch.from_numpy(levels)))
        elif num_classes == 2:
            out.append(logits[:, 1] > logits[:, 0])
        else:
            out.append(logits.argmax(dim=1))
    return torch.cat(out)


def _dev_scores(values: Tensor, targets: Floats, dev: Mask, levels: Floats | None) -> Tensor:
    """Accuracy or Pearson's correlation of each fit's values [rows, fits] over its dev rows."""
    mask = torch.from_numpy(dev)
    if levels is None:
        gold = torch.from_numpy(targets.argmax(axis=1))[:, None]
        return ((values == gold) & mask).sum(dim=0).double() / mask.sum(dim=0)
    gold = torch.from_numpy(targets @ levels).double()[:, None]
    share = mask / mask.sum(dim=0).double()
    values = values - (values * share).sum(dim=0)
    gold = gold - (gold * share).sum(dim=0)
    spread = ((values**2 * share).sum(dim=0) * (gold**2 * share).sum(dim=0)).sqrt()
    return ((values * gold * share).sum(dim=0) / spread).nan_to_num(nan=-1.0)


def choose(scores: NDArray[np.float64]) -> int:
    """The place of the best score; scores that are equal to a hundredth of a point go to the first, as in SentEval."""
    return int(np.argmax(np.round(100 * scores, 2)))


def class_values(labels: Labels, where: str) -> Labels:
    """The different labels in ascending order."""
    if not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"labels of type {labels.dtype}: {where}. Give integers.")
    values = np.unique(labels)
    if len(values) < 2:
        raise InputError(f"one label only ({values[0] if len(values) else 'no row'}): {where}. Two or more are needed.")
    return values


def classes_of(labels: Labels, values: Labels, where: str) -> Rows:
    """The place of each label in `values`."""
    unknown = ~np.isin(labels, values)
    if unknown.any():
        raise InputError(f"label {labels[unknown][0]} is not in the training set: {where}. Leave its rows out.")
    return np.searchsorted(values, labels)


def check_finite(features: Floats, rows: Rows, where: str) -> None:
    """Refuse NaN and infinity, naming the first row that has one."""
    bad = ~np.isfinite(features).all(axis=1)
    if bad.any():
        raise InputError(f"features are not finite: {where}, row {rows[bad][0]}. Check the embeddings.")
