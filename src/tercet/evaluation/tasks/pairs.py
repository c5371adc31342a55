"""Pairs of texts with a score or a yes/no label, and how they are scored: by the cosine, with nothing trained."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tercet.errors import InputError
from tercet.evaluation.intervals import Items
from tercet.evaluation.metrics import Array, average_precision, cosine, pearson, spearman
from tercet.evaluation.tasks.task import Embed, Result


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts and their gold numbers."""

    first: list[str]
    second: list[str]
    gold: Array

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, float]]) -> "Pairs":
        """Collect (text, text, gold) rows."""
        rows = list(rows)
        if not rows:
            raise InputError("no pairs with a score or label were found. Check the files.")
        first, second, gold = zip(*rows, strict=True)
        return cls(list(first), list(second), np.array(gold, np.float64))

    @classmethod
    def joined(cls, parts: list["Pairs"]) -> "Pairs":
        """Put sets of pairs after one another."""
        first = [text for part in parts for text in part.first]
        second = [text for part in parts for text in part.second]
        return cls(first, second, np.concatenate([part.gold for part in parts]))

    @property
    def texts(self) -> list[str]:
        """All texts, first ones first."""
        return self.first + self.second


def cosines(pairs: Pairs, embed: Embed) -> Array:
    """Return the cosine of each pair."""
    vectors = embed(pairs.texts)
    return cosine(vectors[: len(pairs.first)], vectors[len(pairs.first) :])


def score_spearman(subsets: dict[str, Pairs], embed: Embed, *, items: bool = False) -> Result:
    """Score pairs by Spearman's correlation of cosine and gold score.

    The score is over all pairs of all subsets together ("all"); the mean over subsets, plain and weighted by size, is
    reported beside it.
    """
    everything = Pairs.joined(list(subsets.values()))
    together, gold = cosines(everything, embed), everything.gold
    if len(gold) < 2 or np.ptp(gold) == 0:
        raise InputError("scored pairs: a correlation needs at least two different gold scores. Give more pairs.")
    result: Result = {
        "metric": "spearman",
        "score": 100 * spearman(together, gold),
        "num": len(gold),
        "protocol": "cosine, Spearman over all pairs of all subsets together",
        "pearson": 100 * pearson(together, gold),
        **({"items": Items("spearman", together, gold)} if items else {}),
    }
    if len(subsets) > 1:
        sizes = [len(pairs.gold) for pairs in subsets.values()]
        parts = zip(subsets.items(), np.split(together, np.cumsum(sizes)[:-1]), strict=True)
        scores = {name: 100 * spearman(predicted, pairs.gold) for (name, pairs), predicted in parts}
        result["mean"] = float(np.mean(list(scores.values())))
        result["weighted_mean"] = float(np.average(list(scores.values()), weights=sizes))
        result["subsets"] = scores
    return result


def score_paraphrase(pairs: Pairs, embed: Embed, *, items: bool = False) -> Result:
    """Score yes/no pairs by the average precision of the cosine."""
    if not pairs.gold.any() or pairs.gold.all():
        raise InputError("paraphrase pairs: need both labels, 0 and 1. Check the label column.")
    scores = cosines(pairs, embed)
    return {
        "metric": "average precision",
        "score": 100 * average_precision(pairs.gold, scores),
        "num": len(pairs.gold),
        "protocol": "average precision of the cosine against the yes/no label",
        **({"items": Items("average precision", scores, pairs.gold)} if items else {}),
    }
