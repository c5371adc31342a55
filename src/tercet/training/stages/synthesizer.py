"""The stage `synthesizer`: a T5 learns to write what sentences entail or contradict, and to tell the two apart."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import TITLE, NliPair
from tercet.data.rows.settings import RowSettings
from tercet.encoder.forward.engine import resolve_precision
from tercet.synthesis.discriminator import Discriminator
from tercet.training.loop.loop import Evaluate
from tercet.training.loop.settings import Every, ScoreSettings
from tercet.training.objectives.generate import GenerateDiscriminate, GenerateSettings, InferenceRow, pairs_of
from tercet.training.stages.generator import OUTPUT, GeneratorSettings, TrainedGenerator
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.texts import placed
from tercet.training.stages.trained import open_dev_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MAX_LOSS = 700.0
"""What a mean loss is cut to: the exponential of more is no number."""

Score = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""Premises and hypotheses to the probability of `true`."""


class SynthesizerDevSettings(ScoreSettings):
    """When and on what a generator/discriminator is scored: 100 x accuracy - 10 x perplexity."""

    every: Every = 500
    """How many steps lie between two scores, or `{times: 5}`. There is also one before the first step and one after the
    last."""

    rows: RowSettings
    """Triplets and NLI pairs, as those that it learns from."""

    max_rows: int | None = Field(default=None, ge=1)
    """The first so many rows alone are used; null for all."""


class SynthesizerStage(GeneratorSettings, GenerateSettings):
    """The settings of a stage that trains a generator/discriminator. `batch` counts rows: a triplet is 4 instances."""

    evaluate: SynthesizerDevSettings | None = None
    """Scores in between; null for none."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        dev = [] if self.evaluate is None else self.evaluate.rows.sources
        return [*super().names(), *(source.path for source in dev)]


class _Synthesizer(TrainedGenerator[GenerateDiscriminate]):
    settings: SynthesizerStage
    objective = GenerateDiscriminate

    def __init__(self, settings: SynthesizerStage, context: Context) -> None:
        rows = open_rows(
            placed(settings.rows, context), kind="inference", rank=context.processes.rank, progress=context.progress
        )
        super().__init__(settings, context, rows)
        self._dev: list[NliPair] = []
        if settings.evaluate is not None:
            rows = open_dev_rows(settings.evaluate.rows, "inference", context)
            self.inputs["dev"] = rows.describe()
            dev = cast("Iterator[InferenceRow]", islice(rows, settings.evaluate.max_rows))
            self._dev = [pair for row in dev for pair in pairs_of(row)]

    def score(self, objective: GenerateDiscriminate, tokenizer: "PreTrainedTokenizerBase") -> Evaluate | None:
        if self.settings.evaluate is None:
            return None
        model, max_tokens = objective.module, self.settings.max_sentence_tokens
        precision = resolve_precision(self.settings.precision, model_type=model.config.model_type, device=model.device)

        def score() -> dict[str, Any]:
            discriminator = Discriminator(model, tokenizer, precision=precision, max_tokens=max_tokens)
            return dev_scores(objective, discriminator, self._dev)

        return score


def dev_scores(objective: GenerateDiscriminate, score: Score, pairs: Sequence[NliPair]) -> dict[str, Any]:
    """Return the perplexity of generation, the accuracy of discrimination in percent, and GenSE's sum of both."""
    perplexity = math.exp(min(objective.mean_loss(objective.generation(pairs)), _MAX_LOSS))
    pairs = [pair for pair in pairs if pair.label != TITLE]
    likely = score([pair.premise for pair in pairs], [pair.hypothesis for pair in pairs]) > 0.5
    accuracy = float(np.mean(likely == np.array([pair.label == "entailment" for pair in pairs])))
    return {"dev": 100 * accuracy - 10 * perplexity, "accuracy": 100 * accuracy, "perplexity": perplexity}


KIND = Kind(SynthesizerStage, _Synthesizer, output=OUTPUT, rows="inference")
