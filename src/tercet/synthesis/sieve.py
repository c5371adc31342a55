"""The sieve: of all that is put in, what all rules hold for comes out, each once, and all else is counted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tercet.storage.hashing import text_digest

T = TypeVar("T")

_DUPLICATE = "duplicate"
_NUM_SAMPLES = 5
_SHOWN_CHARS = 200  # of a text in a sample: some lines are megabytes


class Sieve(Generic[T]):
    """Keeps things, and counts what each rule drops; the first rule that does not hold counts, duplicates come last.

    Args:
        rules: Whether a thing may stay, by the rule's name, in the order in which they are asked.
        key: What is equal for duplicates; None where they may stay.
        shown: What the audit shows of a thing that is dropped.
    """

    def __init__(
        self, rules: Mapping[str, Callable[[T], bool]], *, key: Callable[[T], str] | None, shown: Callable[[T], Any]
    ) -> None:
        self._rules, self._key, self._shown = rules, key, shown
        self._seen = Seen()
        self.tally = Tally([*rules, *([] if key is None else [_DUPLICATE])])

    def accept(self, things: Iterable[T]) -> list[T]:
        """Return those that are kept."""
        kept = []
        for thing in things:
            broken = next((name for name, holds in self._rules.items() if not holds(thing)), None)
            if broken is None:
                kept.append(thing)
            else:
                self.tally.drop(broken, self._shown(thing))
        if self._key is not None:
            is_new = self._seen.add([*map(self._key, kept)])
            for thing in compress(kept, (not new for new in is_new)):
                self.tally.drop(_DUPLICATE, self._shown(thing))
            kept = [*compress(kept, is_new)]
        self.tally.num_kept += len(kept)
        return kept


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


class Seen:
    """A set of texts, as hashes of 128 bits in a few sorted arrays, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[np.bytes_]] = []

    def add(self, texts: Sequence[str]) -> list[bool]:
        """Add texts, and return for each whether it is new: not among those before it, here or in earlier calls."""
        if not texts:
            return []
        keys = np.array([text_digest(text) for text in texts], "S16")
        is_new = np.zeros(len(keys), bool)
        is_new[np.unique(keys, return_index=True)[1]] = True
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, keys), len(array) - 1)
            is_new &= array[places] != keys
        new = np.sort(keys[is_new])
        while self._arrays and len(self._arrays[-1]) < 2 * len(new):
            new = np.sort(np.concatenate([self._arrays.pop(), new]), kind="stable")  # two sorted runs
        if len(new):
            self._arrays.append(new)
        return [bool(flag) for flag in is_new]


def _short(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {name: _short(value) for name, value in sample.items()}
    return sample[:_SHOWN_CHARS] if isinstance(sample, str) else sample
