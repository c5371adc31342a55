"""The verb `mine`: rows to train on, found by an encoder in texts or pairs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.given import GivenTexts, open_given
from tercet.data.rows.kinds import Triplet
from tercet.encoder.choice import Model, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.errors import InputError, SettingError
from tercet.mining.negatives import NegativeRules, negatives_of
from tercet.mining.paraphrases import Pairs, paraphrases
from tercet.mining.translations import translations
from tercet.mining.vectors import vectors_of
from tercet.storage.choices import DEFAULT_MODEL, Mined, TextFormat, check_choice
from tercet.storage.files import atomic_write, check_writable
from tercet.storage.progress import progress_bar


@dataclass(frozen=True)
class MinedRows:
    """What was found."""

    num_texts: int
    """How many texts were compared."""

    rows: list[dict[str, Any]]
    """The rows, as they are in the file."""

    def __repr__(self) -> str:
        return f"MinedRows({len(self.rows):,} rows of {self.num_texts:,} texts)"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return {"num_texts": self.num_texts, "rows": self.rows}


def mine(
    texts: "GivenTexts",
    other: "GivenTexts | None" = None,
    *,
    find: Mined = "paraphrases",
    out: str | Path | None = None,
    model: "Model" = DEFAULT_MODEL,
    k: int | None = None,
    max_rows: int = 500_000,
    min_score: float | None = None,
    max_score: float | None = None,
    num_negatives: int = 3,
    min_rank: int = 0,
    max_rank: int | None = None,
    margin: float | None = None,
    relative_margin: float | None = None,
    column: str | None = None,
    format: TextFormat | None = None,
    precision: str = "exact",
    progress: bool = False,
) -> MinedRows:
    """Find rows to train on.

    `paraphrases` are the pairs of one corpus with the highest cosines, as by `paraphrase_mining` of
    sentence-transformers. `negatives` adds to each pair of a file texts that are near its anchor and not among its
    positives, by the rules of `mine_hard_negatives`. `translations` are pairs of two corpora by the ratio margin, each
    text once.

    Args:
        texts: A list of texts or a file; for `negatives` a file of pairs, with columns such as anchor and positive.
        other: For `translations` the texts of the other language; for `negatives` more texts to take them from.
        find: `paraphrases`, `negatives` or `translations`.
        out: Where to: a JSONL file that training reads.
        model: An encoder by its name, its settings, or an Encoder.
        k: How many neighbours of each text are looked at: 100 for paraphrases, 4 for translations.
        max_rows: The most pairs, for paraphrases.
        min_score: Pairs or negatives with a lower score are left out.
        max_score: Negatives with a higher cosine are left out.
        num_negatives: The most negatives of a pair.
        min_rank: How many of the nearest texts are skipped, which may be positives that nobody marked.
        max_rank: The last rank that a negative may have; as far as needed where None.
        margin: How far below the cosine of the positive a negative is.
        relative_margin: The same as a share of that cosine.
        column: Which column of a file of texts holds the text.
        format: How a file is written, where its ending does not tell.
        precision: How texts are embedded; see `embed`.
        progress: Whether bars are shown.

    Raises:
        SettingError: A setting does not fit what is looked for.
        InputError: The texts cannot be read.
    """
    check_choice("find", find, Mined)
    if find == "translations" and other is None:
        raise SettingError("find 'translations': needs two files. Give the texts of the other language, too.")
    if find == "paraphrases" and other is not None:
        raise SettingError("find 'paraphrases': looks at one file. Leave the other out, or find translations.")
    if num_negatives < 1 or (k is not None and k < 1):
        raise SettingError("num_negatives, k: are counts. Give one or more.")
    target = None if out is None else Path(out)
    if target is not None:
        check_writable(target)
    encoder, least = load_encoder(model), -np.inf if min_score is None else min_score
    finder = _Finder(encoder, precision, progress, column, format)
    if find == "negatives":
        rules = NegativeRules(num_negatives, min_rank, max_rank, max_score, min_score, margin, relative_margin)
        found = finder.negatives(texts, other, rules)
    elif find == "translations":
        found = finder.translations(texts, other or [], k or 4, least)
    else:
        found = finder.paraphrases(texts, k or 100, max_rows, least)
    if target is not None:
        with atomic_write(target, "w") as stream:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in found.rows)
    return found


@dataclass(frozen=True)
class _Finder:
    encoder: Encoder
    precision: str
    progress: bool
    column: str | None
    format: TextFormat | None

    def paraphrases(self, texts: "GivenTexts", k: int, max_rows: int, least: float) -> MinedRows:
        all_texts, vectors = self._read(texts)
        with progress_bar(
            "looking for paraphrases", total=len(vectors), unit="texts", enabled=self.progress
        ) as advance:
            pairs = paraphrases(vectors, k=k, max_pairs=max_rows, min_score=least, advance=advance)
        return MinedRows(len(vectors), [*_rows(pairs, all_texts, all_texts, ("anchor", "positive", "cosine"))])

    def translations(self, texts: "GivenTexts", other: "GivenTexts", k: int, least: float) -> MinedRows:
        sources, source = self._read(texts)
        targets, target = self._read(other)
        total = len(source) + len(target)
        with progress_bar("looking for translations", total=total, unit="texts", enabled=self.progress) as advance:
            pairs = translations(source, target, k=k, min_score=least, advance=advance)
        return MinedRows(total, [*_rows(pairs, sources, targets, ("source", "target", "margin"))])

    def negatives(self, texts: "GivenTexts", other: "GivenTexts | None", rules: NegativeRules) -> MinedRows:
        pairs = _pairs(texts)
        more = [] if other is None else self._texts(other)
        anchors = list(dict.fromkeys(pair.anchor for pair in pairs))
        corpus = list(dict.fromkeys([*more, *(pair.positive for pair in pairs)]))
        place_of, number_of = _places(corpus), _places(anchors)
        positives: list[list[int]] = [[] for _ in anchors]
        counts = np.zeros(len(anchors), np.int64)
        for pair in pairs:
            number = number_of[pair.anchor]
            counts[number] += 1
            if place_of[pair.positive] not in positives[number]:
                positives[number].append(place_of[pair.positive])
        vectors = [
            vectors_of(each, self.encoder, precision=self.precision, progress=self.progress)
            for each in (anchors, corpus)
        ]
        rows = []
        with progress_bar(
            "looking for negatives", total=len(anchors), unit="anchors", enabled=self.progress
        ) as advance:
            found = negatives_of(
                vectors[0], vectors[1], positives, rules, max_positives=int(counts.max()), advance=advance
            )
            for anchor, own, (places, scores) in zip(anchors, positives, found, strict=True):
                negatives = [corpus[place] for place in places]
                shown = [round(score, 4) for score in scores]
                rows += [
                    {"anchor": anchor, "positive": corpus[place], "negatives": negatives, "cosines": shown}
                    for place in own
                    if negatives
                ]
        return MinedRows(len(anchors) + len(corpus), rows)

    def _read(self, texts: "GivenTexts") -> tuple[list[str], Any]:
        with open_given(texts, column=self.column, file_format=self.format) as given:
            vectors = vectors_of(given, self.encoder, precision=self.precision, progress=self.progress)
            return list(given), vectors

    def _texts(self, texts: "GivenTexts") -> list[str]:
        with open_given(texts, column=self.column, file_format=self.format) as given:
            return list(given)


def _pairs(texts: Any) -> list[Triplet]:
    """Return the pairs of a file, or of a list of pairs."""
    if isinstance(texts, str | Path):
        return [row for row in open_rows(str(texts), kind="triplets") if isinstance(row, Triplet)]
    pairs = [Triplet(*pair[:2]) for pair in texts if isinstance(pair, tuple | list) and len(pair) >= 2]
    if not pairs or len(pairs) < len(texts):
        raise InputError("find 'negatives': needs pairs. Give a file with anchor and positive, or a list of tuples.")
    return pairs


def _places(texts: list[str]) -> dict[str, int]:
    return {text: place for place, text in enumerate(texts)}


def _rows(pairs: Pairs, first: list[str], second: list[str], names: tuple[str, str, str]) -> Iterator[dict[str, Any]]:
    for score, i, j in zip(*(part.tolist() for part in pairs), strict=True):
        yield {names[0]: first[i], names[1]: second[j], names[2]: round(score, 4)}
