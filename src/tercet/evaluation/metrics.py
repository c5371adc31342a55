"""Metrics: plain functions of arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.encoder.model.arrays import unit

Array = NDArray[Any]


def cosine(a: Array, b: Array) -> Array:
    """Return the cosine of each row of `a` with the same row of `b`."""
    return np.asarray((unit(a) * unit(b)).sum(-1))


def pearson(a: Array, b: Array) -> float:
    """Return Pearson's correlation; 0 where one side is constant, which is correlated with nothing."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def spearman(a: Array, b: Array) -> float:
    """Return Spearman's correlation: Pearson's of the ranks, ties sharing their mean rank."""
    return pearson(ranks(a), ranks(b))


def ranks(values: Array) -> Array:
    """Return the rank of each value, from 1; equal values share their mean rank."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse])


def average_precision(relevant: Array, scores: Array) -> float:
    """Return the area under the precision-recall curve as a sum of steps; equal scores are one step."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    hits = np.cumsum(np.asarray(relevant)[order])
    last_of_step = np.append(np.diff(np.asarray(scores)[order]) != 0, True)
    hits, found = hits[last_of_step], np.flatnonzero(last_of_step) + 1
    if hits[-1] == 0:
        return 0.0
    return float((np.diff(hits, prepend=0) * hits / found).sum() / hits[-1])


def accuracy(predicted: Array, gold: Array) -> float:
    """Return the share of equal labels."""
    return float(np.mean(np.asarray(predicted) == np.asarray(gold)))


def f1(predicted: Array, gold: Array) -> float:
    """Return the F1 of label 1."""
    predicted, gold = np.asarray(predicted) == 1, np.asarray(gold) == 1
    both = int((predicted & gold).sum())
    total = int(predicted.sum() + gold.sum())
    return 2 * both / total if total else 0.0


def matthews(predicted: Array, gold: Array) -> float:
    """Return Matthews' correlation of two binary labelings; 0 where one of them is constant."""
    return pearson(np.asarray(predicted) == 1, np.asarray(gold) == 1)
