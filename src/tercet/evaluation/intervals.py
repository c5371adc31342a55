"""Whether a difference is more than chance: a paired bootstrap over the items that two encoders were scored on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tercet.evaluation.metrics import average_precision, spearman

_NUM_DRAWS = 2_000
_LEVEL = 0.95

Statistic = Literal["mean", "spearman", "average precision"]


@dataclass(frozen=True)
class Items:
    """What a score was computed from, one number for each item."""

    statistic: Statistic
    """How the score follows from them; x 100."""
    values: NDArray[np.float64]
    """Of each item, such as a query's average precision or a pair's cosine."""
    gold: NDArray[np.float64] | None = None
    """What values are compared with, for statistics that compare."""

    def score(self, chosen: NDArray[np.int64] | slice = slice(None)) -> float:
        """Return the score of some of the items, x 100."""
        gold = np.empty(0) if self.gold is None else self.gold[chosen]
        return 100 * _STATISTICS[self.statistic](self.values[chosen], gold)


_STATISTICS: Mapping[Statistic, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "mean": lambda values, _gold: float(values.mean()),
    "spearman": spearman,
    "average precision": lambda values, gold: average_precision(gold, values),
}


def interval_of_gain(pairs: Sequence[tuple[Items, Items]], *, seed: int = 0) -> tuple[float, float]:
    """Return the 95% interval of the mean difference of scores before and after.

    Items are drawn with replacement 2,000 times, the same ones before and after, for each score by itself.

    Args:
        pairs: For each score, its items before and after, in the same order.
        seed: What items are drawn with.
    """
    draw = np.random.default_rng(seed)
    gains = np.zeros(_NUM_DRAWS)
    for number in range(_NUM_DRAWS):
        for before, after in pairs:
            chosen = draw.integers(len(before.values), size=len(before.values))
            gains[number] += (after.score(chosen) - before.score(chosen)) / len(pairs)
    low, high = np.quantile(gains, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)
