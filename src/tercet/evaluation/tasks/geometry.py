"""The geometry of an embedding space, measured on scored pairs."""

import numpy as np

from tercet.data.sets.folder import DataFolder
from tercet.encoder.model.arrays import unit
from tercet.errors import InputError
from tercet.evaluation.geometry import alignment, anisotropy, uniformity
from tercet.evaluation.tasks.pairs import Pairs
from tercet.evaluation.tasks.sts import load_stsb
from tercet.evaluation.tasks.task import Embed, Options, Result, Task

POSITIVE_ABOVE = 4.0
"""Pairs with a gold score above this count as positive."""


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
