"""Views of a text: pairs to learn from, or to be judged by, that need no model. The table at the end has them all."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import get_args

import numpy as np

from tercet.data.rows.words import as_words
from tercet.errors import SettingError
from tercet.storage.choices import View
from tercet.storage.hashing import text_key

_SPAN_WORDS = (3, 9)
"""The fewest and most words of a span."""

_TELLING_WORDS = (2, 6)
"""The fewest and most words that tell of a text."""

_LEFT_OUT = 0.5
"""How many of the telling words their text has to do without."""

_LEAST_REST = 4
"""What is left of a text has so many words."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[]?[A-Z0-9])")

Pair = tuple[str, str]
Draw = np.random.Generator


def views_of(texts: Iterable[str], view: View, *, num_views: int = 1, seed: int = 0) -> Iterator[Pair]:
    """Yield pairs of the parts of each text: what asks, and what it should find.

    What is drawn for a text follows from the seed and the text, not from its neighbours.

    Args:
        texts: Texts; for `words` they are read twice.
        view: Which parts.
        num_views: How many pairs each text gives; equal ones are dropped, and so are texts that are too short.
        seed: What the parts are drawn with.

    Raises:
        SettingError: There is no such view.
    """
    if view not in get_args(View):
        raise SettingError(f"view {view!r}: there is none of that name. Known: {', '.join(get_args(View))}.")
    make = _VIEWS[view](texts)
    for text in texts:
        draw = np.random.default_rng([seed, text_key(text) % 2**63])
        made = (make(text, draw) for _ in range(num_views))
        yield from dict.fromkeys(pair for pair in made if pair is not None)


def _spans(_texts: Iterable[str]) -> Callable[[str, Draw], Pair | None]:
    def span(text: str, draw: Draw) -> Pair | None:
        words = text.split()
        least, most = _SPAN_WORDS
        most = min(most, len(words) - _LEAST_REST)
        if most < least:
            return None
        num = int(draw.integers(least, most + 1))
        start = int(draw.integers(len(words) - num + 1))
        return " ".join(words[start : start + num]), " ".join(words[:start] + words[start + num :])

    return span


def _telling_words(texts: Iterable[str]) -> Callable[[str, Draw], Pair | None]:
    frequency = Counter(word for text in texts for word in set(as_words(text).split()))

    def telling(text: str, draw: Draw) -> Pair | None:
        words = text.split()
        rarity = {place: frequency[key] for place, word in enumerate(words) if (key := as_words(word)).isalpha()}
        first_of = {as_words(words[place]): place for place in reversed(rarity)}
        least, most = _TELLING_WORDS
        most = min(most, len(first_of), len(words) - _LEAST_REST)
        if most < least:
            return None
        rarest = sorted(first_of.values(), key=lambda place: (rarity[place], place))
        chosen = sorted(rarest[: int(draw.integers(least, most + 1))])
        gone = {as_words(words[place]) for place in chosen if draw.random() < _LEFT_OUT}
        return " ".join(words[place] for place in chosen), " ".join(w for w in words if as_words(w) not in gone)

    return telling


def _leads(_texts: Iterable[str]) -> Callable[[str, Draw], Pair | None]:
    def lead(text: str, _draw: Draw) -> Pair | None:
        first, *rest = _SENTENCE_END.split(text)
        is_enough = rest and min(len(first.split()), sum(len(part.split()) for part in rest)) >= _LEAST_REST
        return (first, " ".join(rest)) if is_enough else None

    return lead


def _sentences(_texts: Iterable[str]) -> Callable[[str, Draw], Pair | None]:
    def sentence(text: str, draw: Draw) -> Pair | None:
        parts = _SENTENCE_END.split(text)
        chosen = parts.pop(int(draw.integers(len(parts))))
        is_enough = parts and min(len(chosen.split()), sum(len(part.split()) for part in parts)) >= _LEAST_REST
        return (chosen, " ".join(parts)) if is_enough else None

    return sentence


_VIEWS: Mapping[View, Callable[[Iterable[str]], Callable[[str, Draw], Pair | None]]] = {
    "span": _spans,
    "words": _telling_words,
    "lead": _leads,
    "sentence": _sentences,
}
