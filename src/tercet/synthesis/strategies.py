"""Where hypotheses come from: the generator, other sentences, or translations; the discriminator judges all of them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.storage.choices import Strategy
from tercet.storage.extras import require
from tercet.synthesis.candidates import Candidate
from tercet.synthesis.settings import Sampling, SynthesisSettings

Hypotheses = list[list[str]]
"""Some texts for each sentence."""


class Model(Protocol):
    """What generates and discriminates: a Synthesizer."""

    def generate(
        self,
        texts: Sequence[str],
        *,
        relation: Literal["entailment", "contradiction"],
        sampling: Sampling = ...,
        num_samples: int = 1,
        seed: int = 0,
    ) -> Hypotheses:
        """Return texts that follow from each sentence, or contradict it."""

    def score(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float32]:
        """Return for each pair the probability that the hypothesis follows."""

    def fingerprint(self) -> str:
        """Return what changes with the model."""


class Maker(Protocol):
    """Makes hypotheses of sentences."""

    plan: dict[str, Any]
    """What decides them, besides the sentences and the synthesizer."""

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> tuple[Hypotheses, Hypotheses | None]:
        """Return entailments, and contradictions where the strategy has any.

        Args:
            sentences: The sentences of a shard.
            first: The number of the first one.
            seed: What draws are made from.
        """


class Generated:
    """Texts that the synthesizer writes."""

    def __init__(
        self, settings: SynthesisSettings, num_samples: int, model: Model, _all: Iterable[str], *, negatives: bool
    ) -> None:
        self._model, self._num_samples, self._negatives = model, num_samples, negatives
        self._sampling = Sampling(**settings.part(Sampling))
        self.plan = self._sampling.model_dump()

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> tuple[Hypotheses, Hypotheses | None]:
        """Return entailments, and contradictions where they are wanted."""
        seeds = [int(word) for word in np.random.SeedSequence(seed).generate_state(2)]

        def write(relation: Literal["entailment", "contradiction"], seed: int) -> Hypotheses:
            return self._model.generate(
                sentences, relation=relation, sampling=self._sampling, num_samples=self._num_samples, seed=seed
            )

        return write("entailment", seeds[0]), write("contradiction", seeds[1]) if self._negatives else None


class Retrieved:
    """The nearest other sentences by BM25. All sentences and their index are in memory."""

    def __init__(self, _settings: SynthesisSettings, num_samples: int, _model: Model, every: Iterable[str]) -> None:
        self._bm25, self._num = require("bm25s", "synthesis"), num_samples
        self._texts = [*every]
        self._index = self._bm25.BM25()
        if self._texts:
            self._index.index(self._tokens(self._texts), show_progress=False)
        self.plan = {"bm25s": version("bm25s")}

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> tuple[Hypotheses, Hypotheses | None]:
        """Return the nearest other sentences that share a word."""
        k = min(self._num + 1, len(self._texts))
        found, scores = self._index.retrieve(self._tokens(sentences), k=k, show_progress=False)
        near = [
            [self._texts[i] for i, score in zip(row, points, strict=True) if score > 0 and i != number][: self._num]
            for number, (row, points) in enumerate(zip(found.tolist(), scores.tolist(), strict=True), first)
        ]
        return near, None

    def _tokens(self, texts: list[str]) -> Any:
        return self._bm25.tokenize(texts, stopwords=None, show_progress=False, return_ids=False)


class Translated:
    """Translations into another language and back."""

    def __init__(self, settings: SynthesisSettings, num_samples: int, _model: Model, _all: Iterable[str]) -> None:
        from tercet.synthesis.translation import Translator

        self._there, self._back = (
            Translator.load(name, convert_pickle=settings.convert_pickle)
            for name in (settings.there or "", settings.back or "")
        )
        self._num_samples, self._max_new_tokens = num_samples, settings.max_new_tokens
        self.plan = {"there": self._there.fingerprint, "back": self._back.fingerprint, "tokens": self._max_new_tokens}

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> tuple[Hypotheses, Hypotheses | None]:
        """Return the best ways back."""
        abroad = [best for [best] in self._there.translate(sentences, max_new_tokens=self._max_new_tokens)]
        return self._back.translate(abroad, num_samples=self._num_samples, max_new_tokens=self._max_new_tokens), None


STRATEGIES: dict[Strategy, Callable[[SynthesisSettings, int, Model, Iterable[str]], Maker]] = {
    "generate": partial(Generated, negatives=True),
    "no-negatives": partial(Generated, negatives=False),
    "retrieval": Retrieved,
    "backtranslation": Translated,
}


def make_candidates(sentences: list[str], *, maker: Maker, model: Model, first: int, seed: int) -> list[Candidate]:
    """Return all candidates of the sentences of a shard, with the discriminator's probabilities."""
    positives, negatives = maker(sentences, first=first, seed=seed)
    anchors = [text for text, own in zip(sentences, positives, strict=True) for _ in own]
    places = [(first + i, sample) for i, own in enumerate(positives) for sample in range(len(own))]
    flat = [*chain.from_iterable(positives)]
    against: list[str | None] = [None] * len(flat) if negatives is None else [*chain.from_iterable(negatives)]
    return [
        Candidate(*place, *rest)
        for place, *rest in zip(
            places, anchors, flat, against, _judge(model, anchors, flat), _judge(model, anchors, against), strict=True
        )
    ]


def _judge(model: Model, anchors: list[str], hypotheses: Sequence[str | None]) -> list[float | None]:
    """Return the probability of each hypothesis; None where there is no text to judge."""
    judged: list[float | None] = [None] * len(hypotheses)
    places = [i for i, text in enumerate(hypotheses) if text and not text.isspace()]
    if places:
        scores = model.score([anchors[i] for i in places], [hypotheses[i] or "" for i in places])
        for i, score in zip(places, scores.tolist(), strict=True):
            judged[i] = score
    return judged
