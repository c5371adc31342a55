"""The stage `tension`: an encoder learns from texts alone, beside another one that starts with the same weights."""

from typing import Self

from pydantic import model_validator

from tercet.data.rows.columns import RowKind
from tercet.encoder.encoder import Encoder
from tercet.errors import SettingError
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.tension import Tension, TensionSettings
from tercet.training.stages.language import refuse_shards
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings


class TensionStage(TrainedSettings, TensionSettings):
    """The settings of a stage of contrastive tension."""

    @model_validator(mode="after")
    def _all_weights(self) -> Self:
        if self.lora is not None:
            raise ValueError("lora: contrastive tension trains all weights of two encoders. Set lora: null")
        return self


class _Tension(TrainedEncoder):
    settings: TensionStage
    row_kind: RowKind = "texts"

    def __init__(self, settings: TensionStage, context: Context) -> None:
        size = (1 + settings.negatives) * context.processes.world
        if settings.batch % size:
            where = f"stages.{context.name}.batch {settings.batch}"
            raise SettingError(f"{where}: holds no whole groups of texts in each process. Give a multiple of {size}.")
        super().__init__(settings, context)
        refuse_shards(context, "tension")

    def start(self) -> Encoder:
        self.companions = (self.load(),)
        return super().start()

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        [other] = self.companions
        return Tension(encoder, other, self.settings, compute=self.settings, gather=gather)


KIND = Kind(TensionStage, _Tension, output="encoder", rows=_Tension.row_kind)
