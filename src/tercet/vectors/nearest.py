"""The nearest vectors of many, exactly, in bounded memory: blocks of queries against blocks of the corpus."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tercet.encoder.model.arrays import Vectors

_QUERIES, _CORPUS = 256, 262_144
"""How many queries and how many of the corpus are compared at a time: a quarter of a gigabyte of scores."""

_GROUP = 64
"""Of how many vectors only the nearest is looked at first: to rank all of them takes longer than to compare them."""

Places = NDArray[np.int64]


def nearest(queries: Vectors, corpus: Vectors, k: int, *, itself: bool = True) -> Iterator[tuple[int, Vectors, Places]]:
    """Yield, for a block of queries at a time, the number of the first, scores [n, k] and places [n, k], best first.

    Args:
        queries: [n, width]; scores are inner products.
        corpus: [m, width]; both may be files that are mapped into memory.
        k: How many of the corpus; all where there are fewer.
        itself: Whether a query may be its own neighbour; where it may not, queries are the corpus.
    """
    k = min(k, len(corpus) - (0 if itself else 1))
    if k < 1:
        return
    buffer = torch.empty(min(_QUERIES, len(queries)) * (-(-min(_CORPUS, len(corpus)) // _GROUP) * _GROUP))
    for start in range(0, len(queries), _QUERIES):
        block = as_tensor(queries[start : start + _QUERIES])
        best: tuple[Tensor, Tensor] | None = None
        for first in range(0, len(corpus), _CORPUS):
            part = as_tensor(corpus[first : first + _CORPUS])
            scores = _product(block, part, buffer)
            if not itself:
                own = torch.arange(start, start + len(block)) - first
                inside = (own >= 0) & (own < len(part))
                scores[inside, own[inside]] = -torch.inf
            places = largest(scores, min(k, len(part)))
            found = scores.gather(1, places), places + first
            if best is not None:
                found = torch.cat([best[0], found[0]], 1), torch.cat([best[1], found[1]], 1)
                top = found[0].topk(min(k, found[0].shape[1])).indices
                found = found[0].gather(1, top), found[1].gather(1, top)
            best = found
        if best is not None:
            yield start, best[0].numpy(), best[1].numpy()


def largest(scores: Tensor, num: int) -> Tensor:
    """Return where each row [n, groups x _GROUP] has its largest scores, in their order: they lie in as many groups."""
    groups = scores.unflatten(1, (-1, _GROUP))
    best = groups.amax(2).topk(min(num, groups.shape[1])).indices
    found = groups.gather(1, best[..., None].expand(-1, -1, _GROUP)).flatten(1).topk(num).indices
    places: Tensor = best.gather(1, found // _GROUP) * _GROUP + found % _GROUP
    return places


def _product(block: Tensor, part: Tensor, buffer: Tensor) -> Tensor:
    """Return the inner products, with columns of minus infinity up to a multiple of a group, in a buffer."""
    width = -(-len(part) // _GROUP) * _GROUP
    scores = buffer[: len(block) * width].view(len(block), width)
    torch.mm(block, part.T, out=scores[:, : len(part)])
    scores[:, len(part) :] = -torch.inf
    return scores


def as_tensor(vectors: Vectors) -> Tensor:
    """Return vectors as a tensor over the same memory; a copy where it must not be written."""
    return torch.from_numpy(vectors if vectors.flags.writeable else np.array(vectors))
