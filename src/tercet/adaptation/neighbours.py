"""Nearest neighbours before and after, of a few queries from all over a corpus."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tercet.encoder.model.arrays import Vectors, unit

_ROUNDS = 10


@dataclass(frozen=True)
class Neighbour:
    """A sentence that is near to a query."""

    text: str
    score: float
    """The cosine."""
    moved: bool
    """Whether the other encoder does not have it among the nearest."""


@dataclass(frozen=True)
class Example:
    """A query and the sentences that are nearest to it, nearest first."""

    query: str
    before: tuple[Neighbour, ...]
    after: tuple[Neighbour, ...]

    @property
    def num_new(self) -> int:
        """How many neighbours are new."""
        return sum(neighbour.moved for neighbour in self.after)


def compare(texts: Sequence[str], before: Vectors, after: Vectors, *, num: int = 5, k: int = 3) -> list[Example]:
    """Return queries from all over the texts with their neighbours among them.

    Args:
        texts: Different texts.
        before: The vectors of an encoder, one a text.
        after: Those of another.
        num: How many queries; they are chosen by the vectors of the first encoder.
        k: How many neighbours.
    """
    spaces = [unit(np.asarray(vectors, np.float64)) for vectors in (before, after)]
    examples = []
    for row in spread(spaces[0], num):
        found = [_nearest(vectors, row, k) for vectors in spaces]
        both = set(found[0]) & set(found[1])
        lists = [
            tuple(Neighbour(texts[i], float(vectors[i] @ vectors[row]), i not in both) for i in rows)
            for vectors, rows in zip(spaces, found, strict=True)
        ]
        examples.append(Example(texts[row], *lists))
    return examples


def spread(vectors: Vectors, num: int) -> list[int]:
    """Return rows that are typical of different parts of a space: the nearest to the centres of clusters.

    The clusters start from rows that are far from one another, so that nothing is drawn by chance. Those rows
    themselves would be the oddest of all.

    Args:
        vectors: Vectors of length 1.
        num: How many rows; fewer where there are not so many.
    """
    far = [int(np.argmax(vectors @ vectors.mean(0)))]
    while len(far) < min(num, len(vectors)):
        far.append(int(np.argmin((vectors @ vectors[far].T).max(1))))
    centres = vectors[far]
    for _ in range(_ROUNDS):
        cluster = np.argmax(vectors @ centres.T, axis=1)
        sums = [vectors[cluster == i].sum(0) if (cluster == i).any() else centre for i, centre in enumerate(centres)]
        centres = unit(np.stack(sums))
    scores = vectors @ centres.T
    cluster = np.argmax(scores, axis=1)
    members = (np.flatnonzero(cluster == i) for i in range(len(centres)))
    return [int(rows[np.argmax(scores[rows, i])]) for i, rows in enumerate(members) if len(rows)]


def _nearest(vectors: Vectors, row: int, k: int) -> list[int]:
    scores = vectors @ vectors[row]
    scores[row] = -np.inf
    return [int(i) for i in np.argsort(-scores, kind="stable")[: min(k, len(scores) - 1)]]
