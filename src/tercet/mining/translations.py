"""Translations in two corpora, by the ratio margin of Artetxe and Schwenk (2019)."""

from collections.abc import Callable

import numpy as np

from tercet.encoder.model.arrays import Vectors
from tercet.mining.paraphrases import Pairs
from tercet.vectors.nearest import Places, nearest


def translations(
    source: Vectors,
    target: Vectors,
    *,
    k: int = 4,
    min_score: float = -np.inf,
    advance: Callable[[int], object] = lambda num: None,
) -> Pairs:
    """Return pairs of source and target, best first; each text is in one pair at most.

    The score is the cosine over the mean cosine with the `k` nearest of both sides, so a text that is near everything
    is no translation of anything. The best target of each source and the best source of each target are candidates.

    Args:
        source: [n, width], of length 1.
        target: [m, width].
        k: How many neighbours make the mean.
        min_score: Pairs below it are left out; 1.05 is a usual one.
        advance: Is told how many vectors have been compared with all of the other side.
    """
    forward, backward = _neighbours(source, target, k, advance), _neighbours(target, source, k, advance)
    best_forward = _margins(forward, backward[0].mean(1))
    best_backward = _margins(backward, forward[0].mean(1))
    pairs = np.concatenate(
        [
            np.stack([np.arange(len(source)), best_forward[1]], 1),
            np.stack([best_backward[1], np.arange(len(target))], 1),
        ]
    )
    scores = np.concatenate([best_forward[0], best_backward[0]])
    order = np.argsort(-scores, kind="stable")
    kept, used = list[int](), (np.zeros(len(source), np.bool_), np.zeros(len(target), np.bool_))
    for i in order[scores[order] >= min_score].tolist():
        a, b = pairs[i]
        if not used[0][a] and not used[1][b]:
            used[0][a] = used[1][b] = True
            kept.append(i)
    return scores[kept], pairs[kept, 0], pairs[kept, 1]


def _neighbours(queries: Vectors, corpus: Vectors, k: int, advance: Callable[[int], object]) -> tuple[Vectors, Places]:
    parts = []
    for _, scores, places in nearest(queries, corpus, k):
        parts.append((scores, places))
        advance(len(scores))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _margins(neighbours: tuple[Vectors, Places], means_of_others: Vectors) -> tuple[Vectors, Places]:
    """Return for each text its best margin, and of which candidate."""
    scores, places = neighbours
    margins = scores / ((scores.mean(1, keepdims=True) + means_of_others[places]) / 2)
    best = margins.argmax(1)
    rows = np.arange(len(margins))
    return margins[rows, best], places[rows, best]
