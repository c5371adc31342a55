"""The stage `classify`: an encoder learns to tell entailment, neutral and contradiction apart."""

from tercet.data.rows.columns import RowKind
from tercet.encoder.encoder import Encoder
from tercet.training.objectives.classify import NliClassifier
from tercet.training.objectives.gather import Gather
from tercet.training.stages.stage import Kind
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings


class ClassifyStage(TrainedSettings):
    """The settings of a stage that learns by classification."""


class _Classify(TrainedEncoder):
    row_kind: RowKind = "nli"

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        return NliClassifier(encoder, compute=self.settings, gather=gather, seed=self.context.seed)


KIND = Kind(ClassifyStage, _Classify, output="encoder", rows=_Classify.row_kind)
