"""The stage `reweight`: directions in which texts that belong together differ count less. Nothing is trained."""

from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import Triplet
from tercet.data.rows.settings import RowSettings
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.tower import Dense
from tercet.errors import InputError
from tercet.storage.choices import Precision
from tercet.storage.progress import progress_bar
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.texts import check_end, placed
from tercet.training.stages.trained import EncoderStartSettings

_FEWEST_PAIRS = 100
"""Fewer pairs tell too little about hundreds of directions."""


class ReweightStage(EncoderStartSettings):
    """The settings of a stage that weights an encoder's directions by pairs of texts that belong together."""

    rows: RowSettings
    """The pairs: files, datasets of the hub, or `@NAME`, the rows of an earlier stage. Negatives are not read."""

    max_pairs: int = Field(default=20_000, ge=_FEWEST_PAIRS)
    """How many pairs are read, drawn from all rows."""

    shrink: float = Field(default=2.0, gt=0)
    """What is added to the variance of every direction, where their mean is 1. The more, the less is changed."""

    precision: Precision = "auto"
    """What the pairs are embedded with."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*super().names(), *(source.path for source in self.rows.sources)]


class _Reweight:
    def __init__(self, settings: ReweightStage, context: Context) -> None:
        self._settings, self._context = settings, context
        drawn = placed(settings.rows, context).model_copy(update={"shuffle": True})
        self._rows = open_rows(drawn, kind="triplets", rank=context.processes.rank)
        check_end(self._rows, context)
        self.inputs = {**settings.describe(context), "rows": self._rows.describe()}

    def run(self) -> dict[str, Any]:
        settings, context = self._settings, self._context
        if not context.processes.is_main:
            return {}
        batches = self._rows.batches(batch=1, seed=context.seed, epochs=1)  # larger ones leave the last rows out
        drawn = islice((row for batch in batches for row in batch), settings.max_pairs)
        pairs = [(row.anchor, row.positive) for row in drawn if isinstance(row, Triplet)]
        if len(pairs) < _FEWEST_PAIRS:
            raise InputError(
                f"{settings.rows.sources[0].path}: has {len(pairs)} pairs, and {_FEWEST_PAIRS} are needed. "
                "Give more rows, or longer texts to take parts of."
            )
        device = str(context.processes.device)
        encoder = Encoder.load(**settings.placed(context), device=device, **settings.encoder.given())
        with progress_bar(context.name, total=2 * len(pairs), unit="texts", enabled=context.progress) as advance:
            sides = [
                encoder.embed(texts, precision=settings.precision, normalize=True, progress=advance)
                for texts in zip(*pairs, strict=True)
            ]
        reweight(encoder, sides[0] - sides[1], shrink=settings.shrink)
        encoder.save(context.folder / KIND.output)
        return {"num_pairs": len(pairs)}


def reweight(encoder: Encoder, differences: NDArray[np.float32], *, shrink: float) -> None:
    """Weight an encoder's directions by how little the vectors of texts that belong together differ along them.

    This is within-class covariance normalisation: vectors are multiplied by the inverse square root of the covariance
    of the differences, with `shrink` times its mean variance added to every direction.

    Args:
        encoder: Its projection is changed; it gets one where it has none.
        differences: Of the vectors of texts that belong together: [n, d].
        shrink: The more, the less is changed.
    """
    covariance = np.cov(differences.T.astype(np.float64))
    width = len(covariance)
    variances, directions = np.linalg.eigh(covariance * (width / np.trace(covariance)))
    weights = (variances.clip(0) + shrink) ** -0.5
    matrix = torch.from_numpy((directions * (weights / weights.mean())) @ directions.T)
    layers = encoder.tower.head.dense
    last = layers[-1] if len(layers) else None
    with torch.no_grad():
        if not isinstance(last, Dense) or last.linear.bias is not None or last.activation != "identity":
            last = Dense(width, width, bias=False, activation="identity").to(encoder.device)
            last.linear.weight.copy_(torch.eye(width))
            layers.append(last)
        last.linear.weight.copy_(matrix @ last.linear.weight.to("cpu", torch.float64))


KIND = Kind(ReweightStage, _Reweight, output="encoder")
