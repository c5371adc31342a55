"""Groups of vectors that are all near one of them: sentence-transformers' community detection, in bounded memory."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from tercet.encoder.model.arrays import Vectors
from tercet.vectors.nearest import as_tensor

_AT_A_TIME = 256
_SCORES = 2**26
"""How many vectors are compared with all at a time, and how many scores that may be: a quarter of a gigabyte."""


def communities(
    vectors: Vectors,
    *,
    threshold: float,
    min_size: int,
    advance: Callable[[int], object] = lambda num: None,
) -> list[list[int]]:
    """Return the places of each group's vectors, the center first, then the nearest; the largest group first.

    A center has at least `min_size` vectors within the threshold, itself among them. Centers with the most are taken
    first, and a vector is in one group only. Sizes are counted first, and who belongs to a center is computed when its
    turn comes, so memory does not grow with the number of near pairs.

    Args:
        vectors: [n, width], of length 1.
        threshold: The least cosine with the center.
        min_size: The least size of a group.
        advance: Is told how many vectors have been compared with all.
    """
    corpus, sizes = as_tensor(vectors), np.zeros(len(vectors), np.int64)
    num_rows = _num_rows(len(corpus))
    for start in range(0, len(corpus), num_rows):
        block = corpus[start : start + num_rows]
        is_near = block @ corpus[start:].T >= threshold  # each pair once
        sizes[start : start + len(block)] += is_near.sum(1).numpy()
        sizes[start + len(block) :] += is_near[:, len(block) :].sum(0).numpy()
        advance(len(block))
    centers = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes >= min_size)]
    used, found = np.zeros(len(corpus), np.bool_), list[list[int]]()
    for center, near in _near(corpus, centers, used, threshold):
        if used[center]:
            continue
        free = near[~used[near]]
        if len(free) >= min_size:
            group = [int(center), *free[free != center].tolist()]
            used[group] = True
            found.append(group)
    return sorted(found, key=len, reverse=True)


def _num_rows(num: int) -> int:
    return max(8, min(_AT_A_TIME, _SCORES // max(1, num)))


def _near(
    corpus: torch.Tensor, centers: NDArray[np.int64], used: NDArray[np.bool_], threshold: float
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield centers that are still free when their block begins, with all that is near them, nearest first."""
    size, start = 8, 0  # few at first: a large group takes most of the centers that follow
    while start < len(centers):
        taken = centers[start:]
        free = np.flatnonzero(~used[taken])[:size]
        if not len(free):
            return
        block = taken[free]
        scores = corpus[torch.from_numpy(block)] @ corpus.T
        for center, row in zip(block.tolist(), scores, strict=True):
            near = torch.nonzero(row >= threshold)[:, 0]
            order = torch.argsort(row[near], descending=True, stable=True)
            yield center, near[order].numpy()
        start, size = start + int(free[-1]) + 1, min(2 * size, _num_rows(len(corpus)))
