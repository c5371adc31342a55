"""The stage `distill`: an encoder learns to do as its teachers do."""

from pathlib import Path
from typing import Literal

import torch
from torch import nn

from tercet.data.rows.columns import RowKind
from tercet.encoder.model.encoder import Encoder
from tercet.encoder.model.readouts import T5_FAMILY
from tercet.errors import SettingError
from tercet.storage.hashing import text_key
from tercet.training.objectives.distill import Distill, DistillSettings
from tercet.training.objectives.gather import Gather
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.teachers import Targets, TeacherList
from tercet.training.stages.texts import different_texts
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings

_BRANCH_SCALE = 0.3
"""What the layers behind a fresh token table are scaled by, so that the table is most of a text's first vector."""


class DistillStage(TrainedSettings, DistillSettings):
    """The settings of a stage that learns from teachers."""

    teacher: TeacherList
    """Whose vectors are learned: a model, or a list of them."""

    piece_vectors: Literal["start", "teacher"] = "start"
    """Whether the vectors in a T5's token table are those of the start, or the teachers' vectors of the pieces."""

    cache: Path | None = None
    """The folder where teachers' vectors are kept for other stages and runs, too; in the run's own where null."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*super().names(), *(name for teacher in self.teacher for name in teacher.names())]


class _Distill(TrainedEncoder):
    settings: DistillStage
    row_kind: RowKind = "triplets"

    def __init__(self, settings: DistillStage, context: Context) -> None:
        super().__init__(settings, context)
        if self.rows.num_rows is None:
            raise SettingError(f"stages.{context.name}.rows: teachers need all texts beforehand. Set stream: false.")
        self.inputs["teachers"] = [teacher.describe(context) for teacher in settings.teacher]

    def start(self) -> Encoder:
        settings, context, encoder = self.settings, self.context, super().start()
        cache = settings.cache or context.teachers
        self._targets = Targets(
            settings.teacher, width=encoder.dim, context=context, cache=cache, precision=settings.precision
        )
        self._targets.learn(lambda: different_texts(self.rows))
        if settings.piece_vectors == "teacher":
            set_piece_vectors(encoder, self._targets)
        return encoder

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        return Distill(encoder, self._targets, self.settings, compute=self.settings, gather=gather)


def set_piece_vectors(encoder: Encoder, targets: Targets) -> None:
    """Make a T5's token table of the teachers' vectors of its pieces, and let the layers behind it start small.

    So the mean of its outputs is near the mean of the teachers' vectors of the pieces. Special tokens keep the vectors
    they have, scaled down; a square projection becomes the identity.

    Raises:
        SettingError: The encoder is no T5, or its vectors have another width than its table.
    """
    backbone, tokenizer = encoder.tower.backbone, encoder.tokens.tokenizer
    table = next(backbone.get_input_embeddings().parameters())
    if backbone.config.model_type not in T5_FAMILY or table.shape[1] != encoder.dim:
        raise SettingError("piece_vectors 'teacher': is for a T5 whose vectors are as wide as its table. Take 'start'.")
    special = {*tokenizer.all_special_ids, *range(len(tokenizer), len(table))}
    ids = [i for i in range(len(table)) if i not in special]
    pieces = [str(tokenizer.decode([i])).strip() for i in ids]
    targets.add(lambda: pieces, label="pieces")
    vectors = targets(torch.tensor([text_key(piece) for piece in pieces]))
    branches = [p for name, p in backbone.named_parameters() if name.endswith((".o.weight", ".wo.weight"))]
    with torch.no_grad():
        for weight in (table, *branches):
            weight.mul_(_BRANCH_SCALE)
        table[ids] = vectors.to(table) * encoder.dim**0.5
        for layer in encoder.head.dense_layers:
            if layer.linear.in_features == layer.linear.out_features:
                nn.init.eye_(layer.linear.weight)


KIND = Kind(DistillStage, _Distill, output="encoder")
