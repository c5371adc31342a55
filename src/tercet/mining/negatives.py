"""Hard negatives of pairs: texts that are near an anchor and are not among its positives."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tercet.encoder.model.arrays import Vectors
from tercet.vectors.nearest import Places, nearest


@dataclass(frozen=True)
class NegativeRules:
    """Which neighbours are negatives; the rules of sentence-transformers' `mine_hard_negatives`."""

    num: int = 3
    """The most negatives of an anchor."""

    min_rank: int = 0
    """How many of the nearest are skipped, which may be positives that nobody marked."""

    max_rank: int | None = None
    """The last rank that is looked at; as far as needed where None."""

    max_score: float | None = None
    min_score: float | None = None
    margin: float | None = None
    """How far below the cosine of the (least near) positive a negative is."""

    relative_margin: float | None = None
    """The same as a share of that cosine."""

    def last_rank(self, max_positives: int) -> int:
        """Return the last rank that is looked at, where an anchor has so many positives at most."""
        if self.max_rank is not None:
            return self.max_rank
        some_fall_out = any(rule is not None for rule in (self.margin, self.relative_margin, self.max_score))
        return self.min_rank + self.num * (10 if some_fall_out else 1) + max_positives


def negatives_of(
    anchors: Vectors,
    corpus: Vectors,
    positives: Sequence[Sequence[int]],
    rules: NegativeRules,
    *,
    max_positives: int | None = None,
    advance: Callable[[int], object] = lambda num: None,
) -> Iterator[tuple[list[int], list[float]]]:
    """Yield for each anchor the places of its negatives in the corpus, nearest first, and their cosines.

    Args:
        anchors: [n, width], of length 1.
        corpus: [m, width].
        positives: Where the positives of each anchor stand in the corpus.
        rules: Which neighbours are negatives.
        max_positives: The most positives of an anchor, repeated pairs counted.
        advance: Is told how many anchors are done.
    """
    most = max_positives or max(map(len, positives))
    last = rules.last_rank(most)
    for start, scores, places in nearest(anchors, corpus, last + most):
        own = positives[start : start + len(scores)]
        least = np.array([_least(anchors[start + i], corpus, each) for i, each in enumerate(own)], np.float32)
        refused = _refused(scores, places, own, least[:, None], rules)
        for row_scores, row_places, no in zip(scores, places, refused, strict=True):
            left = np.flatnonzero(~no)[rules.min_rank : last][: rules.num]
            yield row_places[left].tolist(), row_scores[left].tolist()
        advance(len(scores))


def _least(anchor: Vectors, corpus: Vectors, positives: Sequence[int]) -> float:
    return float((corpus[list(positives)] @ anchor).min())


def _refused(
    scores: Vectors, places: Places, positives: Sequence[Sequence[int]], least: Vectors, rules: NegativeRules
) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
    refused = np.array([np.isin(row, own) for row, own in zip(places, positives, strict=True)])
    if rules.margin is not None:
        refused |= scores + np.float32(rules.margin) > least
    if rules.relative_margin is not None:
        refused |= scores > least - np.abs(least) * np.float32(rules.relative_margin)
    if rules.max_score is not None:
        refused |= scores > rules.max_score
    if rules.min_score is not None:
        refused |= scores < rules.min_score
    return refused
