"""What became of all that was looked at: counts that add up, with samples of what was dropped."""

from collections.abc import Iterable
from typing import Any

_NUM_SAMPLES = 5
_SHOWN_CHARS = 200  # of a text in a sample: some lines are megabytes


class Tally:
    """Counts what is kept, and what is dropped by each rule.

    Args:
        rules: The names of the rules.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self.num_kept = 0
        self._dropped = dict.fromkeys(rules, 0)
        self._samples: dict[str, list[Any]] = {rule: [] for rule in self._dropped}

    @property
    def num(self) -> int:
        """How many there were."""
        return self.num_kept + sum(self._dropped.values())

    def drop(self, rule: str, sample: Any) -> None:
        """Count one that a rule drops."""
        self._dropped[rule] += 1
        if len(self._samples[rule]) < _NUM_SAMPLES:
            self._samples[rule].append(_short(sample))

    def as_json(self) -> dict[str, Any]:
        """Return the counts and samples."""
        dropped = {rule: {"num": num, "samples": self._samples[rule]} for rule, num in self._dropped.items()}
        return {"num": self.num, "num_kept": self.num_kept, "dropped": dropped}


def _short(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {name: _short(value) for name, value in sample.items()}
    return sample[:_SHOWN_CHARS] if isinstance(sample, str) else sample
