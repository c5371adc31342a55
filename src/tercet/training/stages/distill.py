"""The stage `distill`: an encoder learns to do as its teachers do."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor

from tercet.data.rows.columns import RowKind
from tercet.encoder.encoder import Encoder
from tercet.encoder.forward.vectors import embed_rows
from tercet.errors import SettingError
from tercet.storage.hashing import text_key
from tercet.training.objectives.distill import Distill, DistillSettings
from tercet.training.objectives.gather import Gather
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.teachers import Targets, TeacherList
from tercet.training.stages.texts import TextSample, different_texts
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings

_FIT_TEXTS = 16_384
_FIT_AT_A_TIME = 256
_FIT_RIDGE = 1e-3
"""How many texts a projection is fitted to, and what is added to the diagonal, as a share of its mean."""


class DistillStage(TrainedSettings, DistillSettings):
    """The settings of a stage that learns from teachers."""

    teacher: TeacherList
    """Whose vectors are learned: a model, or a list of them."""

    fit_projection: bool = Field(default=False, exclude_if=lambda fit: not fit)
    """Whether the start's last layer is first fitted to the teachers' vectors by least squares. A start that was made
    from one teacher is otherwise turned another way than the vectors of several."""

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
        if settings.fit_projection:
            texts = TextSample(settings.rows, context).draw(_FIT_TEXTS)
            fit_projection(encoder, self._targets, texts, precision=settings.precision)
        return encoder

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        return Distill(encoder, self._targets, self.settings, compute=self.settings, gather=gather)


def fit_projection(
    encoder: Encoder, targets: Callable[[Tensor], Tensor], texts: Sequence[str], *, precision: str
) -> None:
    """Change an encoder's projection so that its vectors of texts are as near to their targets as a matrix makes them.

    Raises:
        SettingError: The encoder's last layer is no linear map.
    """
    layers = encoder.head.dense_layers
    if not layers or layers[-1].linear.bias is not None or layers[-1].activation != "identity":
        raise SettingError("fit_projection: the encoder has no projection without bias. Set projection in encoder.")
    dtype = torch.bfloat16 if encoder.resolve_precision(precision) == "fast" else None
    square = torch.zeros(encoder.dim, encoder.dim, dtype=torch.float64)
    product = torch.zeros_like(square)
    with torch.no_grad():
        for start in range(0, len(texts), _FIT_AT_A_TIME):
            some = texts[start : start + _FIT_AT_A_TIME]
            vectors = embed_rows(encoder.tower, encoder.tokens(some)[0], pad_id=encoder.tokens.pad_id, dtype=dtype)
            vectors = vectors.cpu().double()
            square += vectors.T @ vectors
            product += vectors.T @ targets(torch.tensor([text_key(text) for text in some])).double()
        square.diagonal().add_(_FIT_RIDGE * square.diagonal().mean())
        change = torch.linalg.solve(square, product) * encoder.dim**0.5
        weight = layers[-1].linear.weight
        weight.copy_(change.T.to(weight) @ weight)


KIND = Kind(DistillStage, _Distill, output="encoder")
