"""The linear judge, and who meets whom."""

import random

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from tercet.training.stages.judge import LinearJudge, meetings, pair_features, part_of


def some_pairs(num=400, width=6):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(num, 2, width, generator=generator)
    entailed = (vectors.prod(1).sum(1) + vectors[:, 1, 0] > 0.3).float()
    return vectors, entailed


def test_the_judge_is_a_logistic_regression():
    vectors, entailed = some_pairs()
    reference = LogisticRegression(C=1, max_iter=10_000, tol=1e-8)
    features = pair_features(vectors).numpy()
    reference.fit(features, entailed.numpy())
    wanted = reference.predict_proba(features)[:, 1]
    found = LinearJudge(vectors, entailed)(vectors)
    np.testing.assert_allclose(found.numpy(), wanted, atol=2e-3)


def test_a_pair_is_judged_by_the_hypothesis_the_difference_and_the_product():
    found = pair_features(torch.tensor([[[1.0, 2.0], [3.0, -1.0]]]))
    assert found.tolist() == [[3, -1, 2, 3, 3, -2, 10]]


def test_a_premise_meets_hypotheses_of_its_neighbours():
    vectors = torch.eye(8)
    vectors[:4, 7] = torch.tensor([3.0, 3.0, -3.0, -3.0])  # premises 0 and 1 are near, and 2 and 3
    pairs = torch.tensor([[0, 4], [1, 5], [2, 6], [3, 7], [3, 4]])
    met = torch.cat(list(meetings(pairs, vectors, [1], seed=0))).tolist()
    assert [first for first, _ in met] == [0, 1, 2, 3]
    assert met[0] == [0, 5]
    assert met[1] == [1, 4]
    assert met[2][1] in (7, 4)
    assert met[3] == [3, 6]


def test_a_part_of_a_text_is_half_of_its_words_at_least_as_they_stand():
    text, generator = "one two three four five", random.Random(0)
    parts = {part_of(text, generator) for _ in range(200)}
    assert parts == {
        "one two three",
        "two three four",
        "three four five",
        "one two three four",
        "two three four five",
        text,
    }
    assert part_of("word", generator) == "word"
