"""The stage `tsdae`: an encoder learns from texts alone, as a decoder rebuilds them from their vectors."""

from typing import Self

from pydantic import model_validator

from tercet.data.rows.columns import RowKind
from tercet.encoder.encoder import Encoder
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.tsdae import Tsdae, TsdaeSettings
from tercet.training.stages.language import SHARED, refuse_shards, trained_language_model
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings


class TsdaeStage(TrainedSettings, TsdaeSettings):
    """The settings of a stage of TSDAE."""

    @model_validator(mode="after")
    def _all_weights(self) -> Self:
        if self.lora is not None:
            raise ValueError(f"lora: {SHARED}. Set lora: null")
        return self


class _Tsdae(TrainedEncoder):
    settings: TsdaeStage
    row_kind: RowKind = "texts"

    def __init__(self, settings: TsdaeStage, context: Context) -> None:
        super().__init__(settings, context)
        refuse_shards(context, "tsdae")

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        settings = self.settings
        decoder = trained_language_model(encoder, settings, self.context, kind="decoder", tied=settings.tie_decoder)
        return Tsdae(encoder, decoder, settings, compute=settings, gather=gather)


KIND = Kind(TsdaeStage, _Tsdae, output="encoder", rows=_Tsdae.row_kind)
