"""What is found out about an adapted encoder beside the one that it started from, and which of the two is kept."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from tercet.adaptation.neighbours import Example
from tercet.data.feeding.sources import open_rows
from tercet.data.reading.formats import read_records
from tercet.data.rows.kinds import Triplet
from tercet.data.rows.settings import RowSettings
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import unit
from tercet.errors import InputError, RowError, SettingError
from tercet.evaluation.tasks.own import SCORED_KINDS
from tercet.evaluation.tasks.table import choose_tasks, data_for
from tercet.evaluation.tasks.task import Options, Result, Task
from tercet.evaluation.tasks.translation import retrieval_accuracy
from tercet.evaluation.tasks.triplets import score_triplets
from tercet.synthesis.candidates import read_candidates
from tercet.training.recipe import Recipe
from tercet.vectors.store import VectorStore

MAX_LOSS = 2.0
"""More points than this lost on general sentences are a warning."""

_MAX_POOL = 2_000
"""Neighbours are looked for among so many sentences at most."""

_NUM_RECOGNISED, LEAST_RECOGNISED = 200, 0.35
"""Among so many sentences, so large a share should be the nearest to what was written of them."""

_NUM_SAMPLES = 10
_STSB = "STSB-dev"

Group = Literal["own", "synthetic", "general"]


@dataclass(frozen=True)
class Measure:
    """A number before and after."""

    group: Group
    name: str
    metric: str
    num: int
    before: float
    after: float
    lower_is_better: bool = False

    @property
    def gain(self) -> float:
        """How much better it is now; less than 0 where it is worse."""
        return self.before - self.after if self.lower_is_better else self.after - self.before

    def texts(self) -> tuple[str, str, str]:
        """Return before, after and their difference with as many digits as the metric deserves."""
        digits = 3 if self.lower_is_better else 1
        return f"{self.before:.{digits}f}", f"{self.after:.{digits}f}", f"{self.after - self.before:+.{digits}f}"


@dataclass(frozen=True)
class Findings:
    """All that a report says."""

    command: str
    recipe: Recipe
    audit: dict[str, Any]
    """What became of sentences and candidates."""
    num_steps: int
    best_step: int | None
    """The one that was kept for its score; None for the last."""
    num_learned: int
    """How many triplets were learned from."""
    recognised: tuple[int, int]
    """How many sentences are, to the start, the nearest to what follows from them; and how many were asked for."""
    samples: list[dict[str, Any]]
    """Some accepted triplets, with their probabilities."""
    measures: list[Measure]
    examples: list[Example]
    num_pool: int
    """How many sentences neighbours were looked for among."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON; of the recipe, where it is."""
        return {**asdict(self), "recipe": "run/recipe.yaml", "keeps_start": self.keeps_start}

    def of(self, group: Group) -> list[Measure]:
        """Return the measures of a group."""
        return [measure for measure in self.measures if measure.group == group]

    @property
    def own_gain(self) -> float | None:
        """The mean gain on your own tasks; None where there are none."""
        gains = [measure.gain for measure in self.of("own")]
        return float(np.mean(gains)) if gains else None

    @property
    def keeps_start(self) -> bool:
        """Whether the start is kept: where the adapted encoder is worse on your own tasks."""
        return self.own_gain is not None and self.own_gain < 0

    @property
    def verdict(self) -> str:
        """What was kept, and why, in a few words."""
        gain, num_sentences = self.own_gain, self.audit["sentences"]["num_kept"]
        learned = f"learned from {self.num_learned:,} synthetic triplets of {num_sentences:,} sentences"
        if gain is None:
            return f"Kept: the adapted encoder, which {learned}."
        points = f"{abs(gain):.1f} points {'worse' if gain < 0 else 'better'} on your own rows"
        if self.keeps_start:
            return f"Kept: the start. The adapted encoder, which {learned}, is {points}."
        return f"Kept: the adapted encoder, which {learned}. It is {points if gain else 'as good on your own rows'}."

    @property
    def warnings(self) -> list[str]:
        """What a user should know before using the adapted encoder."""
        found = []
        num, total = self.recognised
        if num < LEAST_RECOGNISED * total:
            found.append(
                "The synthesizer's sentences are too vague: from most of them you cannot tell which input they came "
                f"from ({num:,} of {total:,} find theirs). Take a larger synthesizer (--synthesizer)."
            )
        for measure in self.of("general"):
            if measure.gain < -MAX_LOSS:
                found.append(
                    f"The adapted encoder has forgotten something: {-measure.gain:.1f} points less on {measure.name}. "
                    "Fewer steps or a lower learning rate forget less."
                )
        accuracy = self.of("synthetic")[0]
        if self.own_gain is None:
            if accuracy.gain <= 0:
                found.append("Nothing was gained on the held-out synthetic triplets: do not expect a gain elsewhere.")
            found.append("All measures of the domain are synthetic. Only rows of your own (--eval) show a real gain.")
        return found


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


class Scorer:
    """Scores encoders on your own tasks and on general sentences.

    Args:
        own: Your own tasks, as `evaluate` names them.
        data: The folder with the evaluation data; `$TERCET_DATA/eval` where None.

    Raises:
        InputError: There is no such folder.
    """

    def __init__(self, own: Sequence[str], data: str | Path | None) -> None:
        self._own = choose_tasks(own) if own else []
        self._folder = data_for(self._own, data)
        self._has_stsb = self._folder.has("senteval/STS/STSBenchmark/sts-dev.csv")

    def __call__(self, embed: VectorStore) -> list[tuple[Group, str, Result]]:
        """Return the group, name and result of each task.

        Raises:
            InputError: A file is not as it should be.
        """
        scored: list[tuple[Group, str, Result]] = [("own", task.name, self._run(task, embed)) for task in self._own]
        if self._has_stsb:
            return [*scored, ("general", "STS-B dev", self._run(choose_tasks(_STSB)[0], embed))]
        return [*scored, ("general", "general sentences", score_general(embed))]

    def _run(self, task: Task, embed: VectorStore) -> Result:
        try:
            return task.run(self._folder, embed, Options())
        except RowError:  # says file:line
            raise
        except InputError as error:
            raise InputError(f"{task.name}: {error}") from error


def score_general(embed: VectorStore) -> Result:
    """Score everyday sentences of the package: how often a sentence's nearest among all paraphrases is its own."""
    with as_file(files("tercet.adaptation") / "general.tsv") as path:
        rows = [record for _, record in read_records(path)]
    there, back = retrieval_accuracy(*(embed([row[side] for row in rows]) for side in ("text", "paraphrase")))
    return {
        "metric": "paraphrases found",
        "score": 100 * (there + back) / 2,
        "num": len(rows),
        "protocol": "nearest neighbour by cosine among all of the other side, both ways",
    }


def measures_of(
    before: Sequence[tuple[Group, str, Result]],
    after: Sequence[tuple[Group, str, Result]],
    held_out: tuple[Result, Result],
) -> list[Measure]:
    """Put results before and after beside one another."""
    found = [
        Measure(group, name, old["metric"], old["num"], old["score"], new["score"])
        for (group, name, old), (_, _, new) in zip(before, after, strict=True)
    ]
    old, new = held_out
    name, num = "held-out synthetic triplets", old["num"]
    synthetic = [Measure("synthetic", name, old["metric"], num, old["score"], new["score"])]
    for metric in ("alignment", "uniformity"):
        synthetic.append(Measure("synthetic", name, metric, num, old[metric], new[metric], lower_is_better=True))
    own = [measure for measure in found if measure.group == "own"]
    return [*own, *synthetic, *(measure for measure in found if measure.group == "general")]


def score_held_out(rows: RowSettings, embed: VectorStore) -> Result:
    """Score the triplets that nothing was learned from."""
    return score_triplets(cast("list[Triplet]", [*open_rows(rows, kind="triplets")]), embed)


def pool_of(candidates: Path) -> list[str]:
    """Return sentences that something was made of, evenly from all of them."""
    return _evenly([*dict.fromkeys(_anchors(candidates))], _MAX_POOL)


def _anchors(candidates: Path) -> Iterator[str]:
    for file in sorted(candidates.glob("*.parquet")):
        yield from (candidate.anchor for candidate in read_candidates(file))


def samples_of(triplets: Path) -> list[dict[str, Any]]:
    """Return some of the accepted triplets, evenly from all of them."""
    return _evenly([record for _, record in read_records(triplets)], _NUM_SAMPLES)


def recognised(triplets: Path, pool: Sequence[str], embed: VectorStore) -> tuple[int, int]:
    """Return how many sentences are the nearest to what follows from them, and of how many that was asked.

    Args:
        triplets: The accepted triplets.
        pool: Sentences to choose from besides theirs: the fewer there are, the easier it is.
        embed: What says how near texts are.
    """
    follows = {record["anchor"]: record["positive"] for _, record in read_records(triplets)}
    asked = _evenly([*follows], _NUM_RECOGNISED)
    others = _evenly([text for text in pool if text not in follows], _NUM_RECOGNISED - len(asked))
    cosines = unit(embed([follows[text] for text in asked])) @ unit(embed([*asked, *others])).T
    return int(np.sum(cosines.argmax(1) == np.arange(len(asked)))), len(asked)


def _evenly(items: list[Any], num: int) -> list[Any]:
    return [items[i * len(items) // num] for i in range(num)] if len(items) > num else items


def store_of(encoder: Encoder, *, label: str, progress: bool) -> VectorStore:
    """Return what embeds with an encoder, each text once."""
    store = VectorStore(encoder, progress=progress)
    store.label = label
    return store
