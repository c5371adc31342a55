"""The rows that training learns from and evaluation scores."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A text by itself; nothing is said about it."""

    text: str


@dataclass(frozen=True, slots=True)
class Triplet:
    """An anchor, a text that means the same, and texts that do not; without negatives it is a pair."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NliPair:
    """A premise, a hypothesis, and what the first says about the second: a name in LABELS, or TITLE."""

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
class ParaphrasePair:
    """Two texts and whether they mean the same."""

    a: str
    b: str
    same: bool


@dataclass(frozen=True, slots=True)
class RankedPair:
    """A query, a candidate, and whether the candidate answers the query."""

    query: str
    candidate: str
    relevant: bool


@dataclass(frozen=True, slots=True)
class ParallelPair:
    """A text and its translation."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class ClassText:
    """A text and the class that it belongs to."""

    text: str
    label: str


Row = Text | Triplet | NliPair | ScoredPair | ParaphrasePair | RankedPair | ParallelPair | ClassText

LABELS = ("entailment", "neutral", "contradiction")

TITLE = "title"
"""What the label of an NliPair is where the hypothesis is a title of the premise."""


def texts_of(row: Row) -> tuple[str, ...]:
    """Return the texts of a row."""
    match row:
        case Text() | ClassText():
            return (row.text,)
        case Triplet():
            return (row.anchor, row.positive, *row.negatives)
        case NliPair():
            return (row.premise, row.hypothesis)
        case ScoredPair() | ParaphrasePair():
            return (row.a, row.b)
        case RankedPair():
            return (row.query, row.candidate)
        case ParallelPair():
            return (row.source, row.target)


def as_triplet(row: Text | Triplet) -> Triplet:
    """Return a row as a triplet; a text by itself is its own positive."""
    return Triplet(row.text, row.text) if isinstance(row, Text) else row
