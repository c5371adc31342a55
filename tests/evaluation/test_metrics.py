"""Metrics against scipy and scikit-learn."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from tercet.evaluation.metrics import accuracy, average_precision, cosine, f1, matthews, pearson, ranks, spearman

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("levels", [3, 20, 10_000])
def test_correlations_equal_scipys_with_and_without_ties(levels):
    a, b = RNG.integers(0, levels, 500), RNG.integers(0, levels, 500) + 0.3 * np.arange(500)
    assert spearman(a, b) == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-12)
    assert pearson(a, b) == pytest.approx(scipy.stats.pearsonr(a, b).statistic, abs=1e-12)
    np.testing.assert_allclose(ranks(a), scipy.stats.rankdata(a))


def test_what_is_constant_is_correlated_with_nothing():
    assert pearson(np.ones(5), np.arange(5)) == spearman(np.arange(5), np.zeros(5)) == 0.0


@pytest.mark.parametrize("levels", [2, 7, 10_000])
def test_average_precision_equals_scikit_learns_with_and_without_ties(levels):
    for _ in range(20):
        relevant, scores = RNG.integers(0, 2, 60), RNG.integers(0, levels, 60) / levels
        expected = sklearn.metrics.average_precision_score(relevant, scores)
        assert average_precision(relevant, scores) == pytest.approx(expected, abs=1e-12)


def test_average_precision_without_a_relevant_row_is_zero():
    assert average_precision(np.zeros(4), np.arange(4)) == 0.0


def test_labels_are_scored_as_scikit_learn_does():
    for _ in range(20):
        predicted, gold = RNG.integers(0, 2, 40), RNG.integers(0, 2, 40)
        assert accuracy(predicted, gold) == pytest.approx(sklearn.metrics.accuracy_score(gold, predicted))
        assert f1(predicted, gold) == pytest.approx(sklearn.metrics.f1_score(gold, predicted))
        assert matthews(predicted, gold) == pytest.approx(sklearn.metrics.matthews_corrcoef(gold, predicted))
    assert matthews(np.ones(4), np.array([0, 1, 0, 1])) == 0.0
    assert f1(np.zeros(4), np.zeros(4)) == 0.0


def test_the_cosine_is_of_rows():
    a, b = RNG.normal(size=(5, 8)), RNG.normal(size=(5, 8))
    expected = [1 - scipy.spatial.distance.cosine(x, y) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(cosine(a, b), expected)
    assert cosine(np.zeros((1, 3)), np.ones((1, 3)))[0] == 0.0
