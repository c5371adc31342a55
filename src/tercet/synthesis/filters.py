"""The filter: small rules, each with a name; a candidate is accepted where all of them hold."""

from collections.abc import Callable, Set
from functools import partial

from tercet.data.rows.words import as_words, is_any_known, texts_below
from tercet.synthesis.candidates import Candidate
from tercet.synthesis.settings import FilterSettings
from tercet.synthesis.sieve import Sieve

Rule = Callable[[Candidate], bool]
"""Whether a candidate may stay."""


def has_texts(candidate: Candidate) -> bool:
    """No hypothesis is empty."""
    return all(text and not text.isspace() for text in candidate.hypotheses())


def has_words(candidate: Candidate, *, at_least: int) -> bool:
    """Every hypothesis has so many words."""
    return all(len(text.split()) >= at_least for text in candidate.hypotheses())


def has_right_labels(candidate: Candidate) -> bool:
    """The positive is rather true than false, the negative rather false than true."""
    return all(probability > 0.5 for probability in _sureness(candidate))


def is_sure(candidate: Candidate, *, alpha: float) -> bool:
    """The positive is true and the negative false, with at least this probability."""
    return all(probability >= alpha for probability in _sureness(candidate))


def is_apart(candidate: Candidate) -> bool:
    """Neither the sentence nor a hypothesis is, less its last character, a part of the other."""
    anchor, *others = (" ".join(text.casefold().split()) for text in (candidate.anchor, *candidate.hypotheses()))
    return not any(text[:-1] in anchor or anchor[:-1] in text for text in others)


def has_two_meanings(candidate: Candidate) -> bool:
    """Positive and negative are not the same text."""
    return candidate.negative is None or as_words(candidate.positive) != as_words(candidate.negative)


def is_no_leak(candidate: Candidate, *, known: Set[str]) -> bool:
    """None of the texts is among those that are known; short ones are not looked for."""
    return not is_any_known((candidate.anchor, *candidate.hypotheses()), known)


def is_title(candidate: Candidate, *, at_least: int) -> bool:
    """The title has so many words."""
    return len(candidate.anchor.split()) >= at_least


def is_no_copy(candidate: Candidate) -> bool:
    """The title is not the text itself."""
    return as_words(candidate.anchor) != as_words(candidate.positive)


def finds_its_text(candidate: Candidate, *, max_rank: int) -> bool:
    """The text is found by its title."""
    return candidate.rank is not None and candidate.rank <= max_rank


def rules_for(settings: FilterSettings, *, titles: bool = False) -> dict[str, Rule]:
    """Return the rules that are wanted, in the order in which they are asked.

    Args:
        settings: What was chosen.
        titles: Whether the candidates are titles and their texts.

    Raises:
        InputError: A file with evaluation texts cannot be read.
    """
    known = texts_below(*settings.leaks)
    leak = (bool(known), partial(is_no_leak, known=known))
    if titles:
        rules: dict[str, tuple[bool, Rule]] = {
            "short": (True, partial(is_title, at_least=settings.min_title_words)),
            "same": (True, is_no_copy),
            "lost": (True, partial(finds_its_text, max_rank=settings.max_rank)),
            "leak": leak,
        }
        return _wanted(rules)
    rules = {
        "empty": (True, has_texts),
        "short": (True, partial(has_words, at_least=settings.min_hypothesis_words)),
        "label": (settings.argmax, has_right_labels),
        "alpha": (settings.alpha > 0, partial(is_sure, alpha=settings.alpha)),
        "contained": (settings.containment, is_apart),
        "same": (True, has_two_meanings),
        "leak": leak,
    }
    return _wanted(rules)


def _wanted(rules: dict[str, tuple[bool, Rule]]) -> dict[str, Rule]:
    return {name: rule for name, (wanted, rule) in rules.items() if wanted}


class Filter(Sieve[Candidate]):
    """Keeps the candidates that are accepted.

    Args:
        settings: Which rules there are.
        titles: Whether the candidates are titles and their texts.
    """

    def __init__(self, settings: FilterSettings, *, titles: bool = False) -> None:
        super().__init__(
            rules_for(settings, titles=titles), key=_words_of if settings.deduplicate else None, shown=Candidate._asdict
        )


def _words_of(candidate: Candidate) -> str:
    return "\0".join(map(as_words, (candidate.anchor, *candidate.hypotheses())))


def _sureness(candidate: Candidate) -> list[float]:
    """Return how sure the discriminator is that each hypothesis is what it should be."""
    true = candidate.positive_true
    sure = [0.0 if true is None else true]
    if candidate.negative is not None:
        sure.append(0.0 if candidate.negative_true is None else 1.0 - candidate.negative_true)
    return sure
