"""Finders: whether a title tells its text from others, by the vectors of an encoder or by shared words."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.data.rows.words import as_words
from tercet.storage.hashing import sha256_of_json

NUM_OTHERS = 200
"""Among how many other texts a text is looked for."""

LOOKED_AT = 10_000
"""How many texts the others are drawn from: the first ones, so that a stream need not be read to its end."""


class Finder(Protocol):
    """Looks for texts by their titles."""

    fingerprint: str
    """What changes with the places that it finds."""

    def ranks(self, titles: Sequence[str], texts: Sequence[str]) -> list[int]:
        """Return the place of each text where it is looked for by its title among the others: 1 is the best."""


def finder_for(model: str | None, texts: Iterable[str]) -> Finder:
    """Return a finder.

    Args:
        model: The encoder whose vectors are compared; None compares words.
        texts: What the others are drawn from.

    Raises:
        ModelError: The encoder cannot be found, read or trusted.
    """
    first = [*islice(texts, LOOKED_AT)]
    chosen = np.random.default_rng(0).permutation(len(first))[: NUM_OTHERS + 1]  # its own text may be among them
    others = [first[i] for i in sorted(chosen.tolist())]
    return SharedWords(others) if model is None else NearVectors(model, others)


class NearVectors:
    """Compares the vectors of an encoder.

    Args:
        model: The encoder: an embedded name, a folder or a hub id.
        others: The other texts.
    """

    def __init__(self, model: str, others: Sequence[str]) -> None:
        from tercet.encoder.encoder import Encoder

        self._encoder, self._others = Encoder.load(model), others
        self._vectors = self._encoder.embed([*others])
        self.fingerprint = sha256_of_json([self._encoder.fingerprint(), *others])

    def ranks(self, titles: Sequence[str], texts: Sequence[str]) -> list[int]:
        """Return the place of each text by the cosine."""
        asked, wanted = self._encoder.embed([*titles]), self._encoder.embed([*texts])
        return _places(asked @ self._vectors.T, (asked * wanted).sum(1), self._others, texts)


class SharedWords:
    """Compares words: those that few of the other texts have count most.

    Args:
        others: The other texts.
    """

    def __init__(self, others: Sequence[str]) -> None:
        self._others, self._words = others, [_words_of(text) for text in others]
        self._num = Counter(word for words in self._words for word in words)
        self.fingerprint = sha256_of_json([*others])

    def ranks(self, titles: Sequence[str], texts: Sequence[str]) -> list[int]:
        """Return the place of each text by the words that it shares with its title."""
        asked = [_words_of(title) for title in titles]
        scores = np.array([[self._shared(words, others) for others in self._words] for words in asked])
        own = np.array([self._shared(words, _words_of(text)) for words, text in zip(asked, texts, strict=True)])
        return _places(scores, own, self._others, texts)

    def _shared(self, some: set[str], others: set[str]) -> float:
        return sum(math.log(1 + len(self._others) / (1 + self._num[word])) for word in some & others)


def _words_of(text: str) -> set[str]:
    return {*as_words(text).split()}


def _places(
    scores: NDArray[np.floating], own: NDArray[np.floating], others: Sequence[str], texts: Sequence[str]
) -> list[int]:
    """Return the place of each text: after all others whose score is as good or better."""
    is_better = scores >= own[:, None]
    is_better &= np.array([[other != text for other in others] for text in texts])
    return [1 + int(num) for num in is_better.sum(1)]
