"""The stage `contrast`: an encoder learns from pairs and triplets."""

from tercet.encoder import Encoder
from tercet.objectives.contrast import Contrast, ContrastSettings
from tercet.objectives.gather import Gather
from tercet.rows.columns import RowKind
from tercet.stages.stage import Kind
from tercet.stages.trained import Objective, TrainedEncoder, TrainedSettings


class ContrastStage(TrainedSettings, ContrastSettings):
    """The settings of a contrastive stage."""


class _Contrast(TrainedEncoder):
    settings: ContrastStage
    row_kind: RowKind = "triplets"

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        return Contrast(encoder, self.settings, compute=self.settings, gather=gather)


KIND = Kind(ContrastStage, _Contrast, output="encoder")
