"""What the report draws of a corpus: a map of its texts, and cosines of pairs, before and after."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.adaptation.neighbours import spread
from tercet.data.rows.words import as_words
from tercet.encoder.model.arrays import Vectors, unit
from tercet.synthesis.views import Pair
from tercet.vectors.store import VectorStore

_MOST_POINTS = 1_000
_NUM_CLUSTERS = 8
_NUM_WORDS = 4
_LEAST_LETTERS = 3
_BIN = 0.05

Places = list[tuple[float, float]]


@dataclass(frozen=True)
class Map:
    """Texts of a corpus in a plane, before and after."""

    texts: list[str]
    clusters: list[int]
    """Of each text, the number of its cluster before, from 0."""
    names: list[str]
    """The words that tell each cluster from the others."""
    before: Places
    after: Places
    shares: tuple[float, float]
    """How much of the variance of the vectors the plane shows, before and after."""


@dataclass(frozen=True)
class Cosines:
    """How cosines of matching pairs, and of all others, are distributed."""

    edges: list[float]
    matching: list[float]
    """The share of the pairs in each bin."""
    others: list[float]
    mean_matching: float
    mean_others: float
    told_apart: float
    """How often a matching pair is nearer than another one, x 100."""


def map_of(texts: Sequence[str], before: Vectors, after: Vectors) -> Map | None:
    """Return a map of at most 1,000 of the texts; None where there are fewer than three.

    Each side is projected onto the plane in which the clusters differ most. The second is turned, and mirrored, to
    where the first has the same texts: the directions of a plane have no order of their own.

    Args:
        texts: Different texts.
        before: The vectors of an encoder, one a text; they make the clusters.
        after: Those of another.
    """
    if len(texts) < 3:
        return None
    num = min(len(texts), _MOST_POINTS)
    rows = [i * len(texts) // num for i in range(num)]
    spaces = [unit(np.asarray(vectors, np.float64)[rows]) for vectors in (before, after)]
    chosen = [texts[row] for row in rows]
    typical = spread(spaces[0], _NUM_CLUSTERS)
    nearest = (spaces[0] @ spaces[0][typical].T).argmax(1)
    by_size = [cluster for cluster, _ in Counter(nearest.tolist()).most_common()]
    clusters = [by_size.index(cluster) for cluster in nearest.tolist()]
    (old, old_share), (new, new_share) = (_plane(space, clusters) for space in spaces)
    left, _, right = np.linalg.svd(new.T @ old)
    return Map(
        chosen, clusters, _names(chosen, clusters), _places(old), _places(new @ (left @ right)), (old_share, new_share)
    )


def _plane(vectors: NDArray[np.float64], clusters: Sequence[int]) -> tuple[NDArray[np.float64], float]:
    """Return vectors in the plane in which clusters differ most, and how much of the variance it shows."""
    centred = vectors - vectors.mean(0)
    own = np.array(clusters)
    means = np.stack([centred[own == cluster].mean(0) for cluster in clusters])
    axes = np.linalg.svd(means, full_matrices=False)[2][:2]
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]
    points = centred @ axes.T
    return points, float((points**2).sum() / max((centred**2).sum(), 1e-12))


def _places(points: NDArray[np.float64]) -> Places:
    return [(round(float(x), 4), round(float(y), 4)) for x, y in points]


def _names(texts: Sequence[str], clusters: Sequence[int]) -> list[str]:
    """Return for each cluster the words that are in more of its texts than elsewhere."""
    inside: dict[int, Counter[str]] = {cluster: Counter() for cluster in sorted(set(clusters))}
    sizes = Counter(clusters)
    for text, cluster in zip(texts, clusters, strict=True):
        inside[cluster].update({word for word in as_words(text).split() if len(word) >= _LEAST_LETTERS})
    everywhere = sum(inside.values(), Counter[str]())

    def telling(cluster: int) -> str:
        def surplus(word: str) -> float:
            own, rest = inside[cluster][word], everywhere[word] - inside[cluster][word]
            more = own / sizes[cluster] - rest / max(1, len(texts) - sizes[cluster])
            return more * float(np.log(len(texts) / everywhere[word]))  # words of every text tell nothing

        return ", ".join(sorted(inside[cluster], key=lambda word: (-surplus(word), word))[:_NUM_WORDS])

    return [telling(cluster) for cluster in inside]


def cosines_of(pairs: Sequence[Pair], before: VectorStore, after: VectorStore) -> tuple[Cosines, Cosines] | None:
    """Return how the cosines of pairs are distributed beside those of all others; None with fewer than two pairs.

    Args:
        pairs: What asks, and what it should find.
        before: Embeds texts.
        after: Embeds them, too.
    """
    return None if len(pairs) < 2 else (_cosines(pairs, before), _cosines(pairs, after))


def _cosines(pairs: Sequence[Pair], embed: VectorStore) -> Cosines:
    asks, finds = (unit(embed(side)) for side in zip(*pairs, strict=True))
    cosines = np.clip(asks @ finds.T, -1, 1)
    is_own = np.eye(len(pairs), dtype=bool)
    matching, others = cosines[is_own], np.sort(cosines[~is_own])
    edges = np.linspace(-1, 1, round(2 / _BIN) + 1)
    below, up_to = (np.searchsorted(others, matching, side=side) for side in ("left", "right"))

    def shares(values: NDArray[Any]) -> list[float]:
        return [round(float(share), 5) for share in np.histogram(values, edges)[0] / len(values)]

    return Cosines(
        [round(float(edge), 2) for edge in edges],
        shares(matching),
        shares(others),
        float(matching.mean()),
        float(others.mean()),
        100 * float((below + up_to).mean() / 2 / len(others)),
    )
