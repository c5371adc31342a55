"""The stage `contrast`: an encoder learns from pairs and triplets."""

from typing import Self

from pydantic import model_validator

from tercet.data.rows.columns import RowKind
from tercet.encoder.encoder import Encoder
from tercet.training.objectives.contrast import Contrast, ContrastSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.masked import MaskedWords
from tercet.training.stages.language import SHARED, refuse_shards, trained_language_model
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings


class ContrastStage(TrainedSettings, ContrastSettings):
    """The settings of a contrastive stage."""

    @model_validator(mode="after")
    def _all_weights(self) -> Self:
        if self.mlm_weight is not None and self.lora is not None:
            raise ValueError(f"mlm_weight: {SHARED}. Set one of the two")
        return self


class _Contrast(TrainedEncoder):
    settings: ContrastStage
    row_kind: RowKind = "triplets"

    def __init__(self, settings: ContrastStage, context: Context) -> None:
        super().__init__(settings, context)
        if settings.mlm_weight is not None:
            refuse_shards(context, "mlm_weight")

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        settings, words = self.settings, None
        if settings.mlm_weight is not None:
            model = trained_language_model(encoder, settings, self.context, kind="masked")
            words = MaskedWords(encoder, model, settings, compute=settings, gather=gather)
        return Contrast(encoder, settings, compute=settings, gather=gather, words=words)


KIND = Kind(ContrastStage, _Contrast, output="encoder")
