"""Where candidates come from: the generator, other sentences or translations, judged by the discriminator; titles."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.storage.choices import Strategy
from tercet.synthesis.candidates import Candidate
from tercet.synthesis.finders import finder_for
from tercet.synthesis.nearest_words import NearestByWords
from tercet.synthesis.settings import Relation, Sampling, SynthesisSettings, as_list

Hypotheses = list[list[str]]
"""Some texts for each sentence."""


class Model(Protocol):
    """What generates and discriminates: a Synthesizer."""

    def generate(
        self,
        texts: Sequence[str],
        *,
        relation: Relation,
        sampling: Sampling = ...,
        num_samples: int = 1,
        seed: int = 0,
    ) -> Hypotheses:
        """Return texts that follow from each sentence or contradict it, or titles of it."""

    def score(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float32]:
        """Return for each pair the probability that the hypothesis follows."""

    def fingerprint(self) -> str:
        """Return what changes with the model."""


class Maker(Protocol):
    """Makes candidates from sentences."""

    plan: dict[str, Any]
    """What decides them, besides the sentences and the synthesizer."""

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> list[Candidate]:
        """Return the candidates of sentences.

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

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> list[Candidate]:
        """Return entailments, with contradictions where they are wanted."""
        seeds = [int(word) for word in np.random.SeedSequence(seed).generate_state(2)]

        def write(relation: Relation, seed: int) -> Hypotheses:
            return self._model.generate(
                sentences, relation=relation, sampling=self._sampling, num_samples=self._num_samples, seed=seed
            )

        positives = write("entailment", seeds[0])
        return judged(
            self._model,
            sentences,
            positives,
            write("contradiction", seeds[1]) if self._negatives else None,
            first=first,
        )


class Retrieved:
    """The nearest other sentences by BM25."""

    def __init__(self, _settings: SynthesisSettings, num_samples: int, model: Model, every: Iterable[str]) -> None:
        self._num, self._model, self._nearest = num_samples, model, NearestByWords(every)
        self.plan = {"bm25s": version("bm25s")}

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> list[Candidate]:
        """Return the nearest other sentences that share a word."""
        near = self._nearest(sentences, first=first, num=self._num)
        return judged(self._model, sentences, near, None, first=first)


class Translated:
    """Translations into other languages and back."""

    def __init__(self, settings: SynthesisSettings, num_samples: int, model: Model, _all: Iterable[str]) -> None:
        from tercet.synthesis.translation import Translator

        there, back = (
            [Translator.load(name, convert_pickle=settings.convert_pickle) for name in as_list(names)]
            for names in (settings.there, settings.back)
        )
        self._ways = [*zip(there, back, strict=True)]
        self._model, self._num_samples, self._max_new_tokens = model, num_samples, settings.max_new_tokens
        first, *others = [{"there": way.fingerprint, "back": home.fingerprint} for way, home in self._ways]
        self.plan = {**first, "tokens": self._max_new_tokens} | ({"others": others} if others else {})

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> list[Candidate]:
        """Return the best ways back, `num_samples` for each language."""
        near: Hypotheses = [[] for _ in sentences]
        for there, back in self._ways:
            abroad = [best for [best] in there.translate(sentences, max_new_tokens=self._max_new_tokens)]
            found = back.translate(abroad, num_samples=self._num_samples, max_new_tokens=self._max_new_tokens)
            near = [one + more for one, more in zip(near, found, strict=True)]
        return judged(self._model, sentences, near, None, first=first)


class Titled:
    """Titles that the synthesizer writes, each with the place of its text among others."""

    def __init__(self, settings: SynthesisSettings, num_samples: int, model: Model, every: Iterable[str]) -> None:
        self._model, self._num_samples = model, num_samples
        self._sampling = Sampling(**settings.part(Sampling))
        self._finder = finder_for(settings.finder, every)
        self.plan = {**self._sampling.model_dump(), "finder": self._finder.fingerprint}

    def __call__(self, sentences: list[str], *, first: int, seed: int) -> list[Candidate]:
        """Return titles as anchors, and the texts as their positives."""
        titles = self._model.generate(
            sentences, relation="title", sampling=self._sampling, num_samples=self._num_samples, seed=seed
        )
        places = [(first + i, sample) for i, own in enumerate(titles) for sample in range(len(own))]
        texts = [text for text, own in zip(sentences, titles, strict=True) for _ in own]
        flat = [*chain.from_iterable(titles)]
        ranks = self._finder.ranks(flat, texts)
        return [
            Candidate(*place, title, text, None, None, None, rank)
            for place, title, text, rank in zip(places, flat, texts, ranks, strict=True)
        ]


STRATEGIES: dict[Strategy, Callable[[SynthesisSettings, int, Model, Iterable[str]], Maker]] = {
    "generate": partial(Generated, negatives=True),
    "no-negatives": partial(Generated, negatives=False),
    "retrieval": Retrieved,
    "backtranslation": Translated,
    "title": Titled,
}


def judged(
    model: Model, sentences: list[str], positives: Hypotheses, negatives: Hypotheses | None, *, first: int
) -> list[Candidate]:
    """Return the triplets of sentences, numbered from `first` on, with the discriminator's probabilities."""
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
