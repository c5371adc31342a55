"""The verb `data check`: what a recipe's rows look like to the encoder that will learn from them, before it does."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import ParallelPair, Row, Text, Triplet, texts_of
from tercet.data.rows.settings import RowSettings
from tercet.data.rows.words import as_words
from tercet.encoder.choice import load_encoder
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.errors import InputError
from tercet.storage.progress import progress_bar
from tercet.training.recipe import Recipe, Stage, read_recipe
from tercet.training.stages.kinds import KINDS
from tercet.training.stages.stage import REFERENCE
from tercet.training.stages.trained import TrainedSettings

_NUM_ROWS = 2_000
_NUM_BINS = 10
_MANY, _SOME = 0.05, 0.01
_CLOSE = 0.1
"""Positives that are nearer to their anchors than others by less than this teach little, or are none."""


@dataclass(frozen=True)
class Cosines:
    """The cosines of some pairs."""

    mean: float
    histogram: tuple[float, ...]
    """The share of the pairs in each tenth from 0 to 1; what is below 0 counts to the first."""

    @classmethod
    def of(cls, values: Vectors) -> "Cosines":
        """Count cosines."""
        counts, _ = np.histogram(values.clip(0, 1), bins=_NUM_BINS, range=(0, 1))
        return cls(float(values.mean()), tuple((counts / max(1, len(values))).tolist()))


@dataclass
class RowCheck:
    """What was found in the rows of a stage."""

    num_rows: int
    """How many were looked at."""

    duplicates: float
    """The share of rows with the same texts, as words, as an earlier one."""

    repeated: float
    """The share of rows whose first text, as words, is that of an earlier one."""

    tokens: dict[str, int]
    """The median, the 95th percentile and the most tokens of a text."""

    truncated: float
    """The share of texts that training cuts."""

    cosines: dict[str, Cosines] = field(default_factory=dict)
    """Of anchors with their `positives`, with their own `negatives`, and with the positives of `others`."""

    false_negatives: float = 0.0
    """The share of anchors that are nearer to another row's positive, of other words, than to their own."""

    hard_above: float | None = None
    """The share of hard negatives that are nearer to their anchor than its positive; None where there are none."""

    advice: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def check(
    recipe: str | Path | Recipe,
    *,
    data: str | Path | None = None,
    env: Sequence[str] = (),
    changes: Sequence[str] = (),
    num_rows: int = _NUM_ROWS,
    progress: bool = False,
) -> dict[str, RowCheck]:
    """Look at the rows of every stage of a recipe that trains an encoder, with the encoder that it starts from.

    Args:
        recipe: Whose rows are looked at. Rows that an earlier stage makes are not there yet, and left out.
        data: The folder with the evaluation data, which a recipe may name; `$TERCET_DATA/eval` where None.
        env: Variables of the environment that the recipe may use besides those that begin with `TERCET_`.
        changes: Settings in place of the recipe's, as `PATH=VALUE`.
        num_rows: How many rows of each stage are looked at, as they are fed.
        progress: Whether a bar is shown.

    Returns:
        What was found, by the name of the stage.

    Raises:
        InputError: No stage has rows that can be looked at.
    """
    read = recipe if isinstance(recipe, Recipe) else read_recipe(recipe, changes=changes, env=env, data=data)
    stages = [stage for stage in read.stages if _has_rows(stage)]
    if not stages:
        raise InputError(
            f"{read.name}: has no stage that trains an encoder on rows that are there. Name another recipe."
        )
    found: dict[str, RowCheck] = {}
    with progress_bar("checking rows", total=len(stages), unit="stages", enabled=progress) as advance:
        for stage in stages:
            settings: Any = stage.settings
            mixed = settings.rows.model_copy(update={"mixing": "mixed", "no_duplicates": False})
            rows = open_rows(mixed, kind=KINDS[stage.kind].rows)
            batch = min(num_rows, rows.num_rows or num_rows)
            chosen = next(iter(rows.batches(batch=batch, seed=read.seed, epochs=1)))
            found[stage.name] = _look_at(chosen, _start_of(read, stage), settings.max_tokens)
            advance(1)
    return found


def _has_rows(stage: Stage) -> bool:
    rows = getattr(stage.settings, "rows", None)
    return (
        isinstance(stage.settings, TrainedSettings)
        and isinstance(rows, RowSettings)
        and not any(source.path.startswith(REFERENCE) for source in rows.sources)
    )


def _start_of(recipe: Recipe, stage: Stage) -> Encoder:
    """Return the encoder that a stage, or the one that it starts from, starts from."""
    stages: dict[str, Any] = {each.name: each.settings for each in recipe.stages}
    settings = stages[stage.name]
    while settings.start.startswith(REFERENCE):
        settings = stages[settings.start.removeprefix(REFERENCE)]
    return load_encoder(
        {
            "model": settings.start,
            "tokenizer": settings.tokenizer,
            "revision": settings.revision,
            "convert_pickle": settings.convert_pickle,
            "encoder": settings.encoder.given(),
        }
    )


def _look_at(rows: Sequence[Row], encoder: Encoder, max_tokens: int | None) -> RowCheck:
    texts = [text for row in rows for text in texts_of(row)]
    lengths = np.array([len(ids) for ids in encoder.tokens(texts)[0]])
    cut = encoder.tokens.cut_to(max_tokens)(texts)[1]
    words = [tuple(map(as_words, texts_of(row))) for row in rows]
    found = RowCheck(
        num_rows=len(rows),
        duplicates=_repeated(words),
        repeated=_repeated([each[0] for each in words]),
        tokens={"median": int(np.median(lengths)), "95%": int(np.quantile(lengths, 0.95)), "most": int(lengths.max())},
        truncated=float(np.mean(cut)),
    )
    pairs = [row for row in rows if isinstance(row, Triplet | ParallelPair)]
    if len(pairs) > 1 and len(pairs) == len(rows):
        _compare(found, pairs, encoder)
    found.advice = [*_advice(found, all(isinstance(row, Text) for row in rows))]
    return found


def _compare(found: RowCheck, rows: Sequence[Triplet | ParallelPair], encoder: Encoder) -> None:
    """Compare anchors with their positives, the positives of other rows, and their negatives."""
    anchors, positives = ([texts_of(row)[place] for row in rows] for place in (0, 1))
    first, second = (encoder.embed(column, normalize=True) for column in (anchors, positives))
    own = np.einsum("nd,nd->n", first, second)
    scores = first @ second.T
    apart = ~(_same(positives) | _same(anchors))
    found.cosines = {"positives": Cosines.of(own)}
    if apart.any():
        found.cosines["others"] = Cosines.of(scores[apart])
    found.false_negatives = float(((scores > own[:, None]) & apart).any(1).mean())
    owned = [(i, text) for i, row in enumerate(rows) for text in texts_of(row)[2:]]
    if owned:
        places = np.array([i for i, _ in owned])
        negatives = encoder.embed([text for _, text in owned], normalize=True)
        hard = np.einsum("nd,nd->n", first[places], negatives)
        found.cosines["negatives"] = Cosines.of(hard)
        found.hard_above = float((hard > own[places]).mean())


def _same(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Return which texts are equal as words [n, n]."""
    numbers: dict[str, int] = {}
    ids = np.array([numbers.setdefault(as_words(text), len(numbers)) for text in texts])
    return np.asarray(ids[:, None] == ids)


def _repeated(values: Sequence[object]) -> float:
    return 1 - len(set(values)) / len(values)


def _advice(found: RowCheck, texts_alone: bool) -> list[str]:
    """Return what to do about what was found."""
    advice = []
    if found.duplicates > _SOME:
        advice.append(f"{found.duplicates:.1%} of the rows repeat others: tercet dedup removes them.")
    if not texts_alone and found.repeated > _MANY:
        advice.append(
            f"{found.repeated:.1%} of the first texts stand in several rows, which are each other's negatives in a "
            "batch: set mask_duplicates: true, or rows.no_duplicates: true."
        )
    if found.truncated > _MANY:
        advice.append(f"{found.truncated:.1%} of the texts are cut: raise max_tokens, or split them.")
    if "others" in found.cosines:
        gap = found.cosines["positives"].mean - found.cosines["others"].mean
        if gap < _CLOSE:
            advice.append(
                f"positives are nearer than other rows' by only {gap:.2f}: look at some rows, and at the columns that "
                "are read."
            )
    if found.hard_above is not None and found.hard_above > 2 * _MANY:
        advice.append(
            f"{found.hard_above:.1%} of the hard negatives are nearer than the positive, and may be right answers: "
            "mine with --relative-margin 0.05."
        )
    return advice
