"""What is found out about an adapted encoder beside the one that it started from, and which of the two is kept."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tercet.adaptation.balance import MOST_LOST
from tercet.adaptation.judges import Group, Judgement
from tercet.adaptation.neighbours import Example
from tercet.adaptation.picture import Cosines, Map
from tercet.data.reading.formats import read_records
from tercet.evaluation.intervals import interval_of_gain
from tercet.training.recipe import Recipe

_NUM_SAMPLES = 10


@dataclass(frozen=True)
class Measure:
    """A number before and after."""

    group: Group
    name: str
    metric: str
    num: int
    before: float
    after: float
    low: float
    high: float
    """The 95% interval of the gain, from a paired bootstrap over what was scored."""

    @property
    def gain(self) -> float:
        """How much better it is now; less than 0 where it is worse."""
        return self.after - self.before

    @property
    def sign(self) -> int:
        """1 where it is better and -1 where it is worse by more than chance; else 0."""
        return (self.low > 0) - (self.high < 0)

    def texts(self) -> tuple[str, str, str, str]:
        """Return before, after, their difference and its interval as a reader wants them."""
        return (
            f"{self.before:.1f}",
            f"{self.after:.1f}",
            f"{self.gain:+.1f}",
            f"{self.low:+.1f} to {self.high:+.1f}",
        )


@dataclass(frozen=True)
class Learned:
    """One kind of rows that were learned from."""

    name: str
    num: int
    sentences: dict[str, Any]
    """What became of the texts: how many were read, how many each rule dropped."""
    filters: dict[str, Any] | None
    """What became of what was written for them; None where nothing was."""
    samples: list[dict[str, Any]]


@dataclass(frozen=True)
class Findings:
    """All that a report says."""

    command: str
    recipe: Recipe
    num_steps: int | None
    """How many steps were trained; None where directions were weighted instead."""
    share: float
    """How much of the way from the start to the result was kept."""
    keep_anyway: bool
    learned: list[Learned]
    measures: list[Measure]
    domain: Measure | None
    """What decides: the mean of your own tasks, else of the views of held-out texts; None where there are none."""
    examples: list[Example]
    num_pool: int
    """How many texts neighbours were looked for among."""
    map: Map | None = None
    cosines: tuple[Cosines, Cosines] | None = None
    """Of pairs from held-out texts, before and after."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON; of the recipe, where it is."""
        return {**asdict(self), "recipe": "run/recipe.yaml", "keeps_start": self.keeps_start, "verdict": self.verdict}

    def of(self, group: Group) -> list[Measure]:
        """Return the measures of a group."""
        return [measure for measure in self.measures if measure.group == group]

    @property
    def general(self) -> Measure:
        """The measure on general sentences."""
        return self.of("general")[0]

    @property
    def is_better(self) -> bool:
        """Whether the adapted encoder is better on the domain by more than chance, and has forgotten little."""
        return self.domain is not None and self.domain.low > 0 and self.general.gain >= -MOST_LOST

    @property
    def keeps_start(self) -> bool:
        """Whether the start is kept."""
        return not self.is_better and not self.keep_anyway

    @property
    def verdict(self) -> str:
        """What was kept, and why."""
        kept = "the start" if self.keeps_start else "the adapted encoder"
        return f"Kept: {kept}. {self._reason}"

    @property
    def _reason(self) -> str:
        domain, general = self.domain, self.general
        if domain is None:
            return "Too few texts are held out to judge by. Give more texts, or rows of your own (--eval)."
        _, _, gain, interval = domain.texts()
        found = f"On {domain.name} the adapted encoder is {gain} points (95% interval {interval})"
        lost = f"on {general.name} {general.texts()[2]}"
        if self.is_better:
            return f"{found}, {lost}."
        if domain.low > 0:
            return f"{found}, but {lost}, and at most {MOST_LOST:g} may be lost there."
        reason = "it is worse" if domain.high < 0 else "that may be chance"
        return f"{found}: {reason}."

    @property
    def warnings(self) -> list[str]:
        """What a user should know before using the adapted encoder."""
        found = []
        if self.keep_anyway and not self.is_better:
            found.append("The adapted encoder was kept because of --keep-anyway, not because it is better.")
        if self.share < 1:
            found.append(
                f"Weights lie {self.share:.0%} of the way from the start to what was learned: all of the way, more "
                "would have been forgotten."
            )
        if not self.of("own"):
            found.append(
                "Judged by texts that nothing was learned from: how well a part of each finds the rest. That flatters; "
                "rows of your own (--eval) say more, and --label helps to make some."
            )
        return found


def measures_of(before: Sequence[Judgement], after: Sequence[Judgement]) -> list[Measure]:
    """Put results before and after beside one another, each difference with its interval."""
    return [
        Measure(
            group,
            name,
            old["metric"],
            old["num"],
            old["score"],
            new["score"],
            *interval_of_gain([(old["items"], new["items"])]),
        )
        for (group, name, old), (_, _, new) in zip(before, after, strict=True)
    ]


def domain_of(before: Sequence[Judgement], after: Sequence[Judgement]) -> Measure | None:
    """Return the measure that decides: the mean over your own tasks, or where there are none, over held-out texts."""
    names: dict[Group, str] = {"own": "your own rows", "held-out": "held-out texts"}
    for group, name in names.items():
        found = [(old, new) for (own, _, old), (_, _, new) in zip(before, after, strict=True) if own == group]
        if found:
            old_score, new_score = (sum(pair[side]["score"] for pair in found) / len(found) for side in (0, 1))
            low, high = interval_of_gain([(old["items"], new["items"]) for old, new in found])
            metric = "mean" if len(found) > 1 else found[0][0]["metric"]
            return Measure(group, name, metric, sum(old["num"] for old, _ in found), old_score, new_score, low, high)
    return None


def samples_of(rows: Path) -> list[dict[str, Any]]:
    """Return some of the rows that were learned from, evenly from all of them."""
    return evenly([record for _, record in read_records(rows)], _NUM_SAMPLES)


def evenly(items: list[Any], num: int) -> list[Any]:
    """Return so many items at most, from all over a list."""
    return [items[i * len(items) // num] for i in range(num)] if len(items) > num else items
