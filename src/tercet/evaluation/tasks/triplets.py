"""Triplets: is an anchor nearer to its positive than to its negatives?"""

from collections.abc import Iterable, Sequence

import numpy as np

from tercet.data.rows.kinds import Triplet
from tercet.encoder.model.arrays import unit
from tercet.errors import InputError
from tercet.evaluation.geometry import alignment, uniformity
from tercet.evaluation.intervals import Items
from tercet.evaluation.tasks.task import Embed, Result, Task


def triplet_task(name: str, rows: Iterable[Triplet]) -> Task:
    """Return the task of triplets that are at hand."""
    triplets = [*rows]
    return Task(f"triplets:{name}", lambda _data, embed, _options: score_triplets(triplets, embed), needs_data=False)


def score_triplets(rows: Sequence[Triplet], embed: Embed, *, items: bool = False) -> Result:
    """Score triplets by the share whose anchor is nearer to its positive than to each of its negatives, by cosine.

    A row without negatives is compared with the positive of the next row that has another anchor. Alignment and
    uniformity are those of anchors and positives.
    """
    if not rows:
        raise InputError("triplets: there are none. Give at least one row.")
    negatives = [row.negatives or (_other(rows, number).positive,) for number, row in enumerate(rows)]
    texts = [row.anchor for row in rows] + [row.positive for row in rows] + [text for own in negatives for text in own]
    vectors = unit(np.asarray(embed(texts), np.float64))
    num = len(rows)
    anchors, positives = vectors[:num], vectors[num : 2 * num]
    sizes = [len(own) for own in negatives]
    to_negatives = (np.repeat(anchors, sizes, axis=0) * vectors[2 * num :]).sum(-1)
    nearest = np.maximum.reduceat(to_negatives, np.cumsum([0, *sizes[:-1]]))
    is_right = (anchors * positives).sum(-1) > nearest
    return {
        "metric": "triplet accuracy",
        "score": 100 * float(np.mean(is_right)),
        "num": num,
        "protocol": "anchors whose cosine with their positive is above that with every negative of theirs; alignment "
        "and uniformity of anchors and positives: squared distances, self pairs left out",
        "alignment": alignment(anchors, positives),
        "uniformity": uniformity(vectors[: 2 * num]),
        **({"items": Items("mean", is_right.astype(np.float64))} if items else {}),
    }


def _other(rows: Sequence[Triplet], number: int) -> Triplet:
    """Return the next row with another anchor; the first one comes after the last."""
    for other in (*rows[number + 1 :], *rows[:number]):
        if other.anchor != rows[number].anchor:
            return other
    raise InputError("triplets: rows without a negative need one with another anchor. Give more rows, or negatives.")
