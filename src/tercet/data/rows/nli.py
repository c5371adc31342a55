"""NLI pairs grouped by their premise: an entailment is a positive, a contradiction a negative."""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tercet.data.rows.kinds import NliPair, Triplet

_CODES = {"entailment": 0, "contradiction": 1}


class TextColumn:
    """Many texts in little memory: their bytes one after the other, and where each ends."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        """Add a text at the end."""
        self._bytes += text.encode()
        self._ends.append(len(self._bytes))

    def __getitem__(self, number: int) -> str:
        return self._bytes[self._ends[number] : self._ends[number + 1]].decode()

    def __len__(self) -> int:
        return len(self._ends) - 1


class Premises:
    """Premises with their entailments and contradictions, as triplets.

    Each entailment gives one row. Of the c contradictions of its premise, the entailment with number k (from 0) gets
    those with numbers k, k + 1, ... (modulo c), at most `num_negatives`. Where there is no contradiction, the row has
    no negatives, or is left out. A premise without entailments gives no row.

    Args:
        num_negatives: The most negatives of a row.
        pairs: Whether entailments without a contradiction are rows.
    """

    def __init__(self, *, num_negatives: int = 1, pairs: bool = True) -> None:
        self._num_negatives = num_negatives
        self._pairs = pairs
        self._numbers: dict[str, int] = {}
        self._premises, self._hypotheses = TextColumn(), TextColumn()
        self._premise_of, self._code_of = array("q"), array("b")
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)

    def add(self, pair: NliPair) -> None:
        """Take one pair."""
        number = self._numbers.setdefault(pair.premise, len(self._numbers))
        if number == len(self._premises):
            self._premises.append(pair.premise)
        if pair.label in _CODES:
            self._hypotheses.append(pair.hypothesis)
            self._premise_of.append(number)
            self._code_of.append(_CODES[pair.label])

    def finish(self) -> dict[str, int]:
        """Group what was added, and return the counts."""
        self._numbers.clear()
        num_premises = len(self._premises)
        premise_of, code_of = np.array(self._premise_of), np.array(self._code_of)
        self._order = np.lexsort((code_of, premise_of))  # stable: by premise, entailments first, then as they came
        num_positives = np.bincount(premise_of[code_of == 0], minlength=num_premises)
        num_negatives = np.bincount(premise_of[code_of == 1], minlength=num_premises)
        self._first = np.concatenate([[0], np.cumsum(num_positives + num_negatives)])
        self._num_positives = num_positives
        gives = num_positives if self._pairs else np.where(num_negatives > 0, num_positives, 0)
        self._rows = np.repeat(np.arange(num_premises), gives)
        self._first_row = np.cumsum(gives) - gives
        del self._premise_of, self._code_of
        return {
            "num_premises": num_premises,
            "num_premises_left_out": int(np.sum(gives == 0)),
            "num_triplets": int(gives[num_negatives > 0].sum()),
            "num_pairs": int(gives[num_negatives == 0].sum()),
            "num_rows": len(self._rows),
        }

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> Triplet:
        """Return a row."""
        premise = int(self._rows[number])
        k = number - int(self._first_row[premise])
        first, end = int(self._first[premise]), int(self._first[premise + 1])
        contradictions = self._order[first + int(self._num_positives[premise]) : end]
        num = len(contradictions)
        chosen = [int(contradictions[(k + i) % num]) for i in range(min(num, self._num_negatives))]
        return Triplet(
            self._premises[premise],
            self._hypotheses[int(self._order[first + k])],
            tuple(self._hypotheses[i] for i in chosen),
        )


def as_triplets(pairs: Iterable[NliPair]) -> list[Triplet]:
    """Return pairs as triplets, grouped as training groups them where nothing else is asked for."""
    premises = Premises()
    for pair in pairs:
        premises.add(pair)
    premises.finish()
    return [premises.row(number) for number in range(len(premises))]
