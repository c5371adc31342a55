"""What the two encoders are judged by: your own rows, texts that nothing was learned from, and general sentences."""

from collections.abc import Sequence
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from tercet.data.reading.formats import read_records
from tercet.encoder.model.arrays import unit
from tercet.errors import InputError, RowError, SettingError
from tercet.evaluation.intervals import Items
from tercet.evaluation.tasks.own import SCORED_KINDS
from tercet.evaluation.tasks.table import choose_tasks, data_for
from tercet.evaluation.tasks.task import Options, Result, Task
from tercet.storage.choices import AdaptPlan, View
from tercet.synthesis.views import Pair, views_of
from tercet.vectors.store import VectorStore

Group = Literal["own", "held-out", "general"]

_FROM_TEXT: tuple[View, ...] = ("sentence",)
_FROM_MODEL: tuple[View, ...] = ("span", "words", "lead")

JUDGED_BY: dict[AdaptPlan, tuple[View, ...]] = {
    "titles-reweight": _FROM_TEXT,
    "reweight": _FROM_TEXT,
    "titles": _FROM_MODEL,
    "spans": _FROM_TEXT,
    "mixture": _FROM_TEXT,
    "gense": _FROM_MODEL,
}
"""Which parts of a held-out text look for the rest of it. A view flatters what learned from it, and the rarest words
flatter spans, so plans that learn from spans are judged by sentences alone."""

_NAMES: dict[View, str] = {
    "span": "held-out texts, by some words in a row",
    "words": "held-out texts, by their rarest words",
    "lead": "held-out texts, by their first sentence",
    "sentence": "held-out texts, by their sentences",
}

LEAST_HELD_OUT = 20
"""With fewer held-out texts that have a view, it decides nothing."""

_MOST_SENTENCES = 8
"""So many draws of a sentence each text gives; equal ones count once."""

_NUM_CANDIDATES = 500
"""Each held-out text is looked for among about so many."""

_STSB = "STSB-dev"

Judgement = tuple[Group, str, Result]
"""A group, a name, and a result with its items."""


def own_tasks(names: Sequence[str]) -> tuple[str, ...]:
    """Return your own tasks as `evaluate` names them; the kind of a file without one is told by its columns.

    Raises:
        InputError: A file cannot be read, or has the columns of no kind.
        SettingError: The kind has no score that could be better or worse.
    """
    found = [task.name for task in choose_tasks([*names])]
    for name in found:
        if name.partition(":")[0] not in SCORED_KINDS:
            raise SettingError(
                f"--eval {name}: no kind of file with one score. Take one of: {', '.join(SCORED_KINDS)}."
            )
    return tuple(found)


class Judges:
    """Scores encoders on the same items, so that differences can be told from chance.

    Args:
        own: Your own tasks, as `evaluate` names them.
        data: The folder with the evaluation data, for STSB-dev; `$TERCET_DATA/eval` where None.
        held_out: Texts that nothing was learned from.
        others: Texts that held-out ones are looked for among.
        views: Which parts of held-out texts look for the rest.
        seed: What views are drawn with.

    Raises:
        InputError: There is no such folder.
    """

    def __init__(
        self,
        own: Sequence[str],
        data: str | Path | None,
        *,
        held_out: Sequence[str],
        others: Sequence[str],
        views: Sequence[View],
        seed: int,
    ) -> None:
        self._own = choose_tasks(own) if own else []
        self._folder = data_for(self._own, data)
        self._has_stsb = self._folder.has("senteval/STS/STSBenchmark/sts-dev.csv")
        self._views = {view: _by_text(held_out, view, seed=seed) for view in views}
        self._others = others[:_NUM_CANDIDATES]

    @property
    def pairs(self) -> list[Pair]:
        """What asks and what it should find, each of another held-out text: those of the view that most texts have."""
        return [pairs[0] for pairs in max(self._views.values(), key=len)]

    def on_domain(self, embed: VectorStore) -> list[Judgement]:
        """Return results on your own tasks and on held-out texts.

        Raises:
            InputError: A file is not as it should be.
        """
        found: list[Judgement] = [("own", task.name, self._run(task, embed)) for task in self._own]
        for view, texts in self._views.items():
            if len(texts) >= LEAST_HELD_OUT:
                found.append(("held-out", _NAMES[view], score_view(texts, self._others, embed)))
        return found

    def on_general(self, embed: VectorStore) -> Judgement:
        """Return the result on general sentences: STSB-dev where it is at hand, else those of the package."""
        if self._has_stsb:
            return "general", "STS-B dev", self._run(choose_tasks(_STSB)[0], embed)
        return "general", "general sentences", score_general(embed)

    def _run(self, task: Task, embed: VectorStore) -> Result:
        try:
            return task.run(self._folder, embed, Options(items=True))
        except RowError:  # says file:line
            raise
        except InputError as error:
            raise InputError(f"{task.name}: {error}") from error


def _by_text(texts: Sequence[str], view: View, *, seed: int) -> list[list[Pair]]:
    """Return the pairs of each text that has the view."""
    if view != "sentence":
        return [[pair] for pair in views_of(texts, view, seed=seed)]
    found = ([*views_of([text], view, num_views=_MOST_SENTENCES, seed=seed)] for text in texts)
    return [pairs for pairs in found if pairs]


def score_view(texts: Sequence[Sequence[Pair]], others: Sequence[str], embed: VectorStore) -> Result:
    """Score how well parts of each text find the rest of it, among the rests of other texts: by the MRR.

    Args:
        texts: What asks and what it should find, one or several for each text.
        others: Further texts to be found by mistake.
        embed: What embeds.
    """
    pairs = [pair for text in texts for pair in text]
    place = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    asks, finds = (unit(embed([pair[side] for pair in pairs])) for side in (0, 1))
    candidates = [*(text[0][1] for text in texts), *islice(others, max(0, _NUM_CANDIDATES - len(texts)))]
    cosines = asks @ unit(embed(candidates)).T
    cosines[np.arange(len(pairs)), place] = -np.inf  # of its own text, each part looks for its own rest
    ranks = 1 + (cosines > (asks * finds).sum(1)[:, None]).sum(1)
    items = np.bincount(place, weights=1 / ranks) / np.bincount(place)
    return {
        "metric": "MRR",
        "score": 100 * float(np.mean(items)),
        "num": len(texts),
        "protocol": f"among {len(candidates)} texts, by cosine",
        "items": Items("mean", items),
    }


def general_rows() -> list[dict[str, str]]:
    """Return everyday sentences, each with a paraphrase."""
    with as_file(files("tercet.adaptation") / "general.tsv") as path:
        return [record for _, record in read_records(path)]


def score_general(embed: VectorStore) -> Result:
    """Score everyday sentences of the package: how often a sentence's nearest among all paraphrases is its own."""
    rows = general_rows()
    texts, paraphrases = (unit(embed([row[side] for row in rows])) for side in ("text", "paraphrase"))
    cosines = texts @ paraphrases.T
    places = np.arange(len(rows))
    is_found = np.concatenate([cosines.argmax(1) == places, cosines.argmax(0) == places]).astype(np.float64)
    return {
        "metric": "paraphrases found",
        "score": 100 * float(is_found.mean()),
        "num": len(rows),
        "protocol": "nearest neighbour by cosine among all of the other side, both ways",
        "items": Items("mean", is_found),
    }
