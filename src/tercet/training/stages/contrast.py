"""The stage `contrast`: an encoder learns from pairs and triplets."""

from tercet.data.rows.columns import RowKind
from tercet.encoder.encoder import Encoder
from tercet.training.objectives.contrast import Contrast, ContrastSettings
from tercet.training.objectives.gather import Gather
from tercet.training.stages.stage import Kind
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings


class ContrastStage(TrainedSettings, ContrastSettings):
    """The settings of a contrastive stage."""


class _Contrast(TrainedEncoder):
    settings: ContrastStage
    row_kind: RowKind = "triplets"

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        return Contrast(encoder, self.settings, compute=self.settings, gather=gather)


KIND = Kind(ContrastStage, _Contrast, output="encoder")
