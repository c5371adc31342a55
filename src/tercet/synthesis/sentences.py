"""The sentences that triplets are made of: texts of rows, split where they are documents, checked, each once."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tercet.data.feeding.sources import Rows, open_rows
from tercet.data.rows.kinds import texts_of
from tercet.data.rows.settings import RowSettings
from tercet.data.rows.words import as_words
from tercet.errors import SettingError
from tercet.storage.extras import require
from tercet.synthesis.settings import SentenceSettings
from tercet.synthesis.sieve import Sieve, Tally

_BLOCK = 1024

Rule = Callable[[str], bool]
"""Whether a sentence may stay."""


class Sentences:
    """Sentences in the order of their sources. Each pass over them reads the sources again and counts anew.

    Args:
        settings: Which sentences.
        rejects: The file that tells about rows that cannot be read; None for none.
        rank: The number of this process; the first one writes that file.

    Raises:
        InputError: A source cannot be read or has no text.
        SettingError: A package that is needed is not installed.
    """

    def __init__(self, settings: SentenceSettings, *, rejects: Path | None = None, rank: int = 0) -> None:
        self._settings = settings
        self._split = _splitter(settings.language or "en") if settings.split else None
        self._rules = rules_for(settings)
        several = len(settings.sentences) > 1
        sources = [
            # every source of several must have a weight where one is a stream; they are read one by one all the same
            source.model_copy(update={"weight": 1.0 if several else None})
            for source in settings.sentences
        ]
        rows = RowSettings(sources=sources, on_error="skip", max_bad_fraction=1.0, rejects=rejects)
        self.rows: Rows = open_rows(rows, kind="texts", rank=rank)
        self.num_rows, self.num_texts = 0, 0
        """How many rows, and texts in them, were read in this pass."""
        self._sieve = self._fresh_sieve()

    @property
    def tally(self) -> Tally:
        """What became of the sentences of this pass."""
        return self._sieve.tally

    def __iter__(self) -> Iterator[str]:
        self.num_rows, self.num_texts, self._sieve = 0, 0, self._fresh_sieve()
        for rows in self.rows.apart():
            yield from self._of_source(self._sentences_of(rows))

    def _of_source(self, sentences: Iterator[str]) -> Iterator[str]:
        left = self._settings.max_sentences
        while left is None or left > 0:
            block = [*itertools.islice(sentences, _BLOCK if left is None else min(left, _BLOCK))]
            if not block:
                return
            kept = self._sieve.accept(block)
            left = None if left is None else left - len(kept)
            yield from kept

    def _sentences_of(self, rows: Rows) -> Iterator[str]:
        for row in rows:
            self.num_rows += 1
            for text in dict.fromkeys(texts_of(row)):
                self.num_texts += 1
                yield from [text.strip()] if self._split is None else self._split(text)

    def audit(self) -> dict[str, Any]:
        """Return what became of all that was read in this pass."""
        read: dict[str, Counter[str]] = {}
        for source in self.rows.describe()["sources"]:  # one file may be read twice, such as two of its columns
            read.setdefault(source["path"], Counter()).update({name: source[name] for name in ("num_read", "num_bad")})
        sources = {path: dict(counts) for path, counts in read.items()}
        return {"sources": sources, "num_texts": self.num_texts, **self.tally.as_json()}

    def _fresh_sieve(self) -> Sieve[str]:
        return Sieve(self._rules, key=as_words if self._settings.deduplicate else None, shown=str)


def rules_for(settings: SentenceSettings) -> dict[str, Rule]:
    """Return the rules for sentences, in the order in which they are asked.

    Raises:
        SettingError: The language is unknown, or its package is not installed.
    """
    least, most = settings.min_premise_words, settings.max_premise_words
    rules: dict[str, Rule] = {"short": lambda sentence: len(sentence.split()) >= least}
    if most is not None:
        rules["long"] = lambda sentence: len(sentence.split()) <= most
    if settings.language is not None:
        rules["language"] = _is_in(settings.language)
    return rules


def _is_in(language: str) -> Rule:
    detector = require("py3langid.langid", "synthesis")
    identifier = detector.LanguageIdentifier.from_model_file(detector.MODEL_FILE)
    known = sorted(identifier.labels)
    if language not in known:
        raise SettingError(f"language {language!r}: is unknown. Known: {', '.join(known)}.")
    return lambda sentence: bool(identifier.classify(sentence)[0] == language)


def _splitter(language: str) -> Callable[[str], list[str]]:
    segment = require("sentencex", "synthesis").segment

    def split(text: str) -> list[str]:
        sentences = (" ".join(sentence.split()) for sentence in segment(language, text))
        return [sentence for sentence in sentences if sentence]

    return split
