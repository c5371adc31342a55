"""Texts that nearly repeat an earlier one: each is compared with those that were kept before it."""

from collections.abc import Callable

import numpy as np
import torch

from tercet.encoder.model.arrays import Vectors

_BLOCK = 512
_KEPT = 65_536
"""How many vectors are compared with how many kept ones at a time."""


def first_ones(
    vectors: Vectors, *, threshold: float, advance: Callable[[int], object] = lambda num: None
) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", Vectors]:
    """Return for each vector the place of the kept one that it repeats, itself where it is kept, and the cosine.

    In order, a vector is kept where no kept one before it is as near as the threshold; else it repeats the nearest.

    Args:
        vectors: [n, width], of length 1.
        threshold: From which cosine on a vector is a repetition.
        advance: Is told how many are done.
    """
    num = len(vectors)
    leader, score = np.arange(num), np.ones(num, np.float32)
    kept = torch.empty(0, vectors.shape[1])
    places = torch.empty(0, dtype=torch.int64)
    for start in range(0, num, _BLOCK):
        block = torch.from_numpy(np.array(vectors[start : start + _BLOCK], np.float32))
        best, where = torch.full((len(block),), -torch.inf), torch.zeros(len(block), dtype=torch.int64)
        for first in range(0, len(places), _KEPT):
            top = (block @ kept[first : min(first + _KEPT, len(places))].T).max(1)
            better = top.values > best
            best = torch.where(better, top.values, best)
            where = torch.where(better, places[top.indices + first], where)
        new = _within(block, best, where, start, threshold)
        repeats = best >= threshold
        leader[start : start + len(block)] = torch.where(repeats, where, torch.arange(start, start + len(block)))
        score[start : start + len(block)] = torch.where(repeats, best, torch.ones(len(block)))
        kept, places = _grown(kept, places, block[new], torch.tensor(new) + start)
        advance(len(block))
    return leader, score


def _within(block: torch.Tensor, best: torch.Tensor, where: torch.Tensor, start: int, threshold: float) -> list[int]:
    """Return which vectors of a block are kept, and bring `best` and `where` up to date with those."""
    near = block @ block.T
    new = list[int]()
    for i in range(len(block)):
        if new:
            top = near[i, new].max(0)
            if top.values > best[i]:
                best[i], where[i] = top.values, new[int(top.indices)] + start
        if best[i] < threshold:
            new.append(i)
    return new


def _grown(
    kept: torch.Tensor, places: torch.Tensor, more: torch.Tensor, new: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return kept vectors and their places with further ones; room for vectors doubles, so few are copied."""
    num = len(places) + len(new)
    if num > len(kept):
        larger = torch.empty(max(num, 2 * len(kept)), kept.shape[1])
        larger[: len(places)] = kept[: len(places)]
        kept = larger
    kept[len(places) : num] = more
    return kept, torch.cat([places, new.to(torch.int64)])
