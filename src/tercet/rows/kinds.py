"""The kinds of training rows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Triplet:
    """An anchor, a text that goes with it, and any number that do not. A pair is a triplet without negatives."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    twin: bool = False
    """Whether anchor and positive are one text on purpose: two dropout views, never merged as duplicates."""


@dataclass(frozen=True)
class LabelledPair:
    """A premise, a hypothesis, and what the premise says about it: entailment, neutral or contradiction."""

    premise: str
    hypothesis: str
    label: str
