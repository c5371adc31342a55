"""The verb `cluster`: groups of texts about the same, with names."""

import html
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.data.rows.given import GivenTexts, open_given
from tercet.encoder.choice import Model, load_encoder
from tercet.encoder.model.arrays import Vectors
from tercet.errors import SettingError
from tercet.mining.communities import communities
from tercet.mining.vectors import vectors_of
from tercet.storage.choices import DEFAULT_MODEL, TextFormat
from tercet.storage.files import atomic_write, check_writable
from tercet.storage.progress import progress_bar

_NUM_WORDS = 3
"""How many words name a cluster."""

_MAP_TEXTS = 5_000
"""The most texts on a map: more of them are a sample."""


@dataclass(frozen=True)
class Cluster:
    """Texts that are near one of them."""

    name: str
    """The words that tell it from the others."""

    rows: list[int]
    """Which texts are in it, from 1: the center first, then the nearest."""

    texts: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return {"name": self.name, "rows": self.rows, "texts": self.texts}


@dataclass(frozen=True)
class Clusters:
    """All clusters, the largest first."""

    num_texts: int
    clusters: list[Cluster]

    @property
    def num_clustered(self) -> int:
        """How many texts are in one."""
        return sum(len(cluster.rows) for cluster in self.clusters)

    def __repr__(self) -> str:
        return f"Clusters({len(self.clusters):,} of {self.num_clustered:,} of {self.num_texts:,} texts)"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return {"num_texts": self.num_texts, "clusters": [cluster.to_dict() for cluster in self.clusters]}


def cluster(
    texts: "GivenTexts",
    *,
    out: str | Path | None = None,
    map: str | Path | None = None,
    threshold: float = 0.75,
    min_size: int = 10,
    model: "Model" = DEFAULT_MODEL,
    column: str | None = None,
    format: TextFormat | None = None,
    precision: str = "exact",
    progress: bool = False,
) -> Clusters:
    """Find groups of texts that are all near one of them, and name them by their telling words.

    The groups are those of sentence-transformers' `community_detection`. Texts near too few others are in none.

    Args:
        texts: A list of texts, or a file with one text per row.
        out: Where to: a JSONL file with `name`, `rows` and `texts` of each cluster.
        map: Where to draw the texts by their two main directions: an HTML file that needs nothing else.
        threshold: The least cosine with the center of a cluster.
        min_size: The least number of texts.
        model: An encoder by its name, its settings, or an Encoder.
        column: Which column of a file holds the text.
        format: How a file is written, where its ending does not tell.
        precision: How texts are embedded; see `embed`.
        progress: Whether bars are shown.

    Raises:
        SettingError: The threshold is no cosine, or `min_size` is less than two.
        InputError: The texts cannot be read.
    """
    if not -1 < threshold <= 1:
        raise SettingError(f"threshold {threshold}: is no cosine. Give one between 0 and 1, such as 0.75.")
    if min_size < 2:
        raise SettingError(f"min_size {min_size}: is less than two. A cluster has two texts or more.")
    targets = [None if path is None else Path(path) for path in (out, map)]
    for target in targets:
        if target is not None:
            check_writable(target)
    with open_given(texts, column=column, file_format=format) as given:
        vectors = vectors_of(given, load_encoder(model), precision=precision, progress=progress)
        with progress_bar("looking for clusters", total=len(vectors), unit="texts", enabled=progress) as advance:
            groups = communities(vectors, threshold=threshold, min_size=min_size, advance=advance)
        all_texts = list(given)
    names = names_of([[all_texts[i] for i in group] for group in groups], all_texts)
    found = Clusters(
        len(vectors),
        [
            Cluster(name, [i + 1 for i in group], [all_texts[i] for i in group])
            for name, group in zip(names, groups, strict=True)
        ],
    )
    if targets[0] is not None:
        with atomic_write(targets[0], "w") as stream:
            stream.writelines(json.dumps(each.to_dict(), ensure_ascii=False) + "\n" for each in found.clusters)
    if targets[1] is not None:
        with atomic_write(targets[1], "w") as stream:
            stream.write(page(found, vectors, all_texts))
    return found


def names_of(clusters: Sequence[Sequence[str]], texts: Sequence[str]) -> list[str]:
    """Return for each cluster the words that stand in more of its texts than in all: by share in it times log ratio."""
    num_with = Counter(word for text in texts for word in _words(text))
    names = []
    for cluster in clusters:
        own = Counter(word for text in cluster for word in _words(text))
        telling = {
            word: num / len(cluster) * math.log((num / len(cluster)) / (num_with[word] / len(texts)))
            for word, num in own.items()
        }
        best = sorted(telling, key=lambda word: (-telling[word], word))[:_NUM_WORDS]
        names.append(", ".join(word for word in best if telling[word] > 0) or cluster[0])
    return names


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[^\W\d_]+", text.lower()) if len(word) > 1 or not word.isascii()}


def page(found: Clusters, vectors: Vectors, texts: Sequence[str]) -> str:
    """Return a page with a map of texts, and the clusters under it."""
    number = np.full(len(texts), -1)
    for i, each in enumerate(found.clusters):
        number[np.array(each.rows) - 1] = i
    shown = np.random.default_rng(0).permutation(len(texts))[:_MAP_TEXTS]
    points = places_on_map(np.asarray(vectors[np.sort(shown)]))
    circles = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_color(number[i])}">'
        f"<title>{html.escape(texts[i])}</title></circle>"
        for (x, y), i in zip(points, np.sort(shown).tolist(), strict=True)
    ]
    items = [
        f'<li><b style="color:{_color(i)}">{html.escape(each.name)}</b> ({len(each.rows):,}): '
        f"{html.escape(each.texts[0])}</li>"
        for i, each in enumerate(found.clusters)
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Clusters</title>'
        "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}svg{width:100%}</style>"
        f"<h1>{found.num_clustered:,} of {found.num_texts:,} texts in {len(found.clusters):,} clusters</h1>"
        f'<svg viewBox="0 0 1000 700">{"".join(circles)}</svg><ol>{"".join(items)}</ol></html>\n'
    )


def places_on_map(vectors: Vectors) -> NDArray[np.float32]:
    """Return vectors by the two directions in which they differ most, scaled to 1000 by 700."""
    centred = vectors - vectors.mean(0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    flat = centred @ directions[:, :-3:-1]
    low, high = flat.min(0), flat.max(0)
    return np.asarray(10 + (flat - low) / np.maximum(high - low, 1e-9) * np.array([980, 680]), np.float32)


def _color(number: int) -> str:
    return "#bbb" if number < 0 else f"hsl({number * 137.508 % 360:.0f} 65% 45%)"  # the golden angle: neighbours differ
