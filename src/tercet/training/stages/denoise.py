"""The stage `denoise`: a T5 learns its language by filling gaps in texts (span corruption)."""

from typing import Self

from pydantic import model_validator

from tercet.training.objectives.denoise import Denoise, DenoiseSettings
from tercet.training.stages.generator import OUTPUT, GeneratorSettings, TrainedGenerator
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.texts import open_texts


class DenoiseStage(GeneratorSettings, DenoiseSettings):
    """The settings of a denoising stage."""

    @model_validator(mode="after")
    def _no_scores(self) -> Self:
        if self.evaluate is not None:
            raise ValueError("denoising has no evaluate: what comes out is no encoder yet")
        return self


class _Denoise(TrainedGenerator[Denoise]):
    settings: DenoiseStage
    objective = Denoise

    def __init__(self, settings: DenoiseStage, context: Context) -> None:
        super().__init__(settings, context, open_texts(settings.rows, context))


KIND = Kind(DenoiseStage, _Denoise, output=OUTPUT, rows="texts")
