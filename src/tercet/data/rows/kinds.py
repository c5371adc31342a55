"""The rows that training learns from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Triplet:
    """An anchor, a text that means the same, and texts that do not; without negatives it is a pair."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    twin: bool = False
    """Whether anchor and positive are one text on purpose: two views of it by dropout, never merged as duplicates."""


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """A premise, a hypothesis, and what the one says of the other: a name in LABELS."""

    premise: str
    hypothesis: str
    label: str


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Two texts and how similar they are."""

    a: str
    b: str
    score: float


@dataclass(frozen=True, slots=True)
class ParallelPair:
    """A text and its translation."""

    source: str
    target: str


Row = Triplet | LabelledPair | ScoredPair | ParallelPair

LABELS = ("entailment", "neutral", "contradiction")


def texts_of(row: Row) -> tuple[str, ...]:
    """Return the texts of a row."""
    match row:
        case Triplet():
            return (row.anchor, row.positive, *row.negatives)
        case LabelledPair():
            return (row.premise, row.hypothesis)
        case ScoredPair():
            return (row.a, row.b)
        case ParallelPair():
            return (row.source, row.target)
