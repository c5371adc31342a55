"""Intervals of differences: they are what the statistics say, and find what is there."""

import numpy as np
import pytest
from scipy.stats import bootstrap, spearmanr
from sklearn.metrics import average_precision_score

from tercet.evaluation.intervals import Items, interval_of_gain


def test_the_interval_of_a_mean_is_that_of_scipy():
    rng = np.random.default_rng(0)
    before, after = rng.random(80), rng.random(80) + 0.1
    low, high = interval_of_gain([(Items("mean", before), Items("mean", after))])
    wanted = bootstrap((100 * (after - before),), np.mean, method="percentile", rng=1).confidence_interval
    assert (low, high) == (pytest.approx(wanted.low, abs=0.6), pytest.approx(wanted.high, abs=0.6))


def test_items_are_drawn_in_pairs():
    values = np.random.default_rng(0).random(50)
    low, high = interval_of_gain([(Items("mean", values), Items("mean", values + 0.02))])
    assert (low, high) == (pytest.approx(2), pytest.approx(2))


def test_correlations_and_precisions_are_those_of_scipy_and_scikit_learn():
    rng = np.random.default_rng(1)
    gold, values, labels = rng.random(40), rng.random(40), (rng.random(40) > 0.6).astype(float)
    chosen = rng.integers(40, size=40)
    score = Items("spearman", values, gold).score(chosen)
    assert score == pytest.approx(100 * spearmanr(values[chosen], gold[chosen]).statistic)
    score = Items("average precision", values, labels).score(chosen)
    assert score == pytest.approx(100 * average_precision_score(labels[chosen], values[chosen]))


def test_the_interval_of_several_scores_is_that_of_their_mean():
    rng = np.random.default_rng(2)
    pairs = [(Items("mean", a), Items("mean", a + shift)) for shift in (0.1, 0.3) for a in [rng.random(30)]]
    assert interval_of_gain(pairs) == (pytest.approx(20), pytest.approx(20))
