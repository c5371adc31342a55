"""The geometry of an embedding space: alignment, uniformity, anisotropy."""

import numpy as np

from tercet.errors import InputError
from tercet.tasks.data import DataFolder
from tercet.tasks.metrics import Array, unit
from tercet.tasks.pairs import Pairs
from tercet.tasks.sts import load_stsb
from tercet.tasks.task import Embed, Options, Result, Task

POSITIVE_ABOVE = 4.0
"""Pairs with a gold score above this count as positive."""

_BLOCK = 1024


def alignment(first: Array, second: Array, *, as_printed: bool = False) -> float:
    """Return the mean distance of positive pairs on the unit sphere; lower is better.

    Args:
        first: Vectors of length 1.
        second: Vectors of length 1, paired with the first.
        as_printed: Whether distances are taken as printed in the Sentence-T5 paper, without the square.
    """
    distances = np.linalg.norm(first - second, axis=-1)
    return float(np.mean(distances if as_printed else distances**2))


def uniformity(vectors: Array, *, as_printed: bool = False) -> float:
    """Return the log of the mean of exp(-2 d^2) over all pairs of different vectors; lower is better.

    Args:
        vectors: Vectors of length 1.
        as_printed: Whether the distance d is taken as printed in the Sentence-T5 paper, without the square.
    """
    total, num = 0.0, len(vectors)
    for start in range(0, num, _BLOCK):
        squares = np.maximum(2 - 2 * (vectors[start : start + _BLOCK] @ vectors.T), 0).astype(np.float64)
        total += float(np.exp(-2 * (np.sqrt(squares) if as_printed else squares)).sum())
    return float(np.log((total - num) / (num * (num - 1))))


def anisotropy(vectors: Array) -> float:
    """Return the mean cosine of two different vectors: 0 where directions are spread evenly, 1 where all are one."""
    num = len(vectors)
    return float((np.square(vectors.sum(0, dtype=np.float64)).sum() - num) / (num * (num - 1)))


def measure(pairs: Pairs, embed: Embed) -> Result:
    """Measure the geometry on scored pairs: alignment on positive ones, the rest on all their sentences."""
    positive = pairs.gold > POSITIVE_ABOVE
    if not positive.any():
        raise InputError(f"geometry: no pair has a score above {POSITIVE_ABOVE:g}. Give pairs scored from 0 to 5.")
    vectors = unit(np.asarray(embed(pairs.texts), np.float64))
    first, second = vectors[: len(positive)][positive], vectors[len(positive) :][positive]
    return {
        "metric": "uniformity",
        "score": uniformity(vectors),
        "num": len(vectors),
        "protocol": f"alignment over {int(positive.sum())} pairs with a gold score above {POSITIVE_ABOVE:g}; "
        "uniformity and anisotropy over all sentences; squared distances, self pairs left out; not x 100",
        "alignment": alignment(first, second),
        "uniformity": uniformity(vectors),
        "alignment_as_printed": alignment(first, second, as_printed=True),
        "uniformity_as_printed": uniformity(vectors, as_printed=True),
        "anisotropy": anisotropy(vectors),
    }


def _geometry(data: DataFolder, embed: Embed, _options: Options) -> Result:
    split = "test" if data.has("senteval/STS/STSBenchmark/sts-test.csv") else "dev"
    note = {} if split == "test" else {"note": "on STS-B dev: the test set is not there"}
    return measure(load_stsb(data, split)[split], embed) | {"set": f"STS-B {split}"} | note


TASKS = [Task("geometry", _geometry)]
