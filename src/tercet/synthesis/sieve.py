"""The sieve: of all that is put in, what all rules hold for comes out, each once, and all else is counted."""

from collections.abc import Callable, Iterable, Mapping
from itertools import compress
from typing import Any, Generic, TypeVar

from tercet.synthesis.audit import Tally
from tercet.synthesis.seen import Seen

T = TypeVar("T")

_DUPLICATE = "duplicate"


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
