"""The pairs of a corpus that are nearest to each other: what sentence-transformers calls paraphrase mining."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tercet.encoder.model.arrays import Vectors
from tercet.vectors.nearest import nearest

Pairs = tuple[Vectors, NDArray[np.int64], NDArray[np.int64]]
"""The scores of pairs, and the places of both, the lower one first."""


def paraphrases(
    vectors: Vectors,
    *,
    k: int = 100,
    max_pairs: int = 500_000,
    min_score: float = -np.inf,
    advance: Callable[[int], object] = lambda num: None,
) -> Pairs:
    """Return the pairs with the highest inner products, best first, each once.

    Args:
        vectors: [n, width], of length 1.
        k: How many neighbours of each are looked at.
        max_pairs: The most pairs; twice as many are in memory.
        min_score: Pairs below it are left out.
        advance: Is told how many vectors have been compared with all.
    """
    found: list[Pairs] = []
    floor = min_score
    for start, scores, places in nearest(vectors, vectors, k, itself=False):
        own = np.repeat(np.arange(start, start + len(scores)), scores.shape[1])
        other, score = places.ravel(), scores.ravel()
        good = score >= floor
        own, other = own[good], other[good]
        found.append((score[good], np.minimum(own, other), np.maximum(own, other)))
        if sum(len(part[0]) for part in found) > 2 * max_pairs:
            found = [_best(found, max_pairs, len(vectors))]
            floor = max(floor, float(found[0][0][-1])) if len(found[0][0]) == max_pairs else floor
        advance(len(scores))
    return _best(found, max_pairs, len(vectors))


def _best(found: list[Pairs], max_pairs: int, num: int) -> Pairs:
    if not found:
        return np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.int64)
    scores, low, high = (np.concatenate(part) for part in zip(*found, strict=True))
    _, first = np.unique(low * num + high, return_index=True)
    scores, low, high = scores[first], low[first], high[first]
    order = np.argsort(-scores, kind="stable")[:max_pairs]  # ties by their places
    return scores[order], low[order], high[order]
