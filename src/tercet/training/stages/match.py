"""The stage `match`: a T5 learns to tell two sentences that are a pair from two that are none."""

from typing import Self

from pydantic import model_validator

from tercet.data.feeding.sources import open_rows
from tercet.training.objectives.generate import GenerateSettings, Match
from tercet.training.stages.generator import OUTPUT, GeneratorSettings, TrainedGenerator
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.texts import placed


class MatchStage(GeneratorSettings, GenerateSettings):
    """The settings of a matching stage. `batch` counts rows: each is 2 instances, or more with several negatives."""

    @model_validator(mode="after")
    def _no_scores(self) -> Self:
        if self.evaluate is not None:
            raise ValueError("matching has no evaluate: what comes out is no encoder, and judges no inference yet")
        return self


class _Match(TrainedGenerator[Match]):
    settings: MatchStage
    objective = Match

    def __init__(self, settings: MatchStage, context: Context) -> None:
        rows = open_rows(placed(settings.rows, context), kind="triplets", rank=context.processes.rank)
        super().__init__(settings, context, rows)


KIND = Kind(MatchStage, _Match, output=OUTPUT, rows="triplets")
