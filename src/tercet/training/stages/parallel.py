"""The stage `parallel`: an encoder of one language learns from the vectors of translations."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor

from tercet.data.rows.columns import RowKind
from tercet.data.rows.kinds import ParallelPair
from tercet.encoder.encoder import Encoder
from tercet.errors import SettingError
from tercet.storage.hashing import text_key
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.parallel import FrozenVectors, Parallel, ParallelSettings
from tercet.training.stages.model import StageModel
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.trained import Objective, TrainedEncoder, TrainedSettings, draw_mlp
from tercet.vectors.remembered import RememberedVectors

SOURCE = "source"
"""What a trained source is called in the stage's folder."""


class ParallelStage(TrainedSettings, ParallelSettings):
    """The settings of a stage that learns from parallel pairs."""

    source: StageModel | None = None
    """What embeds the source side of rows; none in the design `multilingual`."""

    cache: bool | Path = False
    """Whether the vectors of a frozen source are kept on disk, in 16 bits: in the run's folder, or in the one named."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*super().names(), *(self.source.names() if self.source else ())]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.source is None) != (self.design == "multilingual"):
            raise ValueError("a source is given unless design is multilingual, which has one encoder for both sides")
        if self.design != "frozen" and (self.cache or (self.lora is not None and self.source is not None)):
            raise ValueError(f"design {self.design}: a source that is trained has neither cache nor lora")
        if self.evaluate is not None and self.evaluate.held_out is not None:
            raise ValueError("evaluate.held_out: parallel pairs are not scored as triplets. Take evaluate.task")
        return self


class _Parallel(TrainedEncoder):
    settings: ParallelStage
    row_kind: RowKind = "parallel"

    def __init__(self, settings: ParallelStage, context: Context) -> None:
        super().__init__(settings, context)
        if settings.cache and self.rows.num_rows is None:
            raise SettingError(f"stages.{context.name}.cache: needs all texts beforehand. Set stream: false.")
        if settings.source is not None:
            self.inputs["source"] = settings.source.describe(context)
        self.inputs["cached"] = bool(settings.cache)

    def start(self) -> Encoder:
        if self.settings.source is not None:
            self.source = self.settings.source.load_in(self.context)
            self.companions = (self.source,) if self.settings.design == "dual" else ()
        return super().start()

    def load(self) -> Encoder:
        encoder = super().load()
        if self.source is not None:
            width = self.source.head.training_width if self.companions else self.source.dim
            fit_width(encoder, width, seed=self.context.seed)
        return encoder

    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        settings = self.settings
        source = self.source or encoder
        teacher = self._frozen(source) if settings.design == "frozen" else source
        objective = Parallel(encoder, teacher, settings, compute=settings, gather=gather)
        self.extra_state = {"queue": objective.queue} if settings.queue else {}
        return objective

    def save(self, encoder: Encoder) -> None:
        super().save(encoder)
        for source in self.companions if self.context.processes.is_main else ():
            source.dtype = torch.float32
            source.save(self.context.folder / SOURCE)

    def _frozen(self, source: Encoder) -> FrozenVectors:
        settings, context = self.settings, self.context
        source.tokens = source.tokens.cut_to(settings.max_tokens)
        if not settings.cache:
            return lambda texts: torch.from_numpy(
                next(source.embed_each([texts], precision=settings.precision)).vectors
            )
        folder = settings.cache if isinstance(settings.cache, Path) else context.teachers
        store = RememberedVectors(folder, source, precision=settings.precision)
        context.remember(store, self._source_texts, label="embedding source texts")

        def remembered(texts: Sequence[str]) -> Tensor:
            return torch.from_numpy(store(np.array([text_key(text) for text in texts], np.int64)))

        return remembered

    def _source_texts(self) -> Iterator[str]:
        return (row.source for row in self.rows if isinstance(row, ParallelPair))


def fit_width(encoder: Encoder, width: int, *, seed: int) -> None:
    """Let an encoder's vectors have so many numbers in training: an MLP of another width is drawn anew.

    Raises:
        SettingError: They have another width, and there is no MLP to change.
    """
    head = encoder.tower.head
    if head.training_width == width:
        return
    if head.mlp is None or head.dense_layers:
        raise SettingError(
            f"vectors have {head.training_width} numbers, those of the source {width}. "
            f"Set encoder.projection: {width}, or encoder.readout: cls-mlp without a projection."
        )
    draw_mlp(encoder, width, seed=seed)


KIND = Kind(ParallelStage, _Parallel, output="encoder", rows=_Parallel.row_kind)
