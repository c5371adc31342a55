"""The stage `whiten`: directions in which texts hardly differ count for more, those in which all differ for less."""

from typing import Any

import torch
from pydantic import Field

from tercet.data.rows.settings import RowSettings
from tercet.encoder.model.encoder import Encoder
from tercet.encoder.model.settings import Vectors
from tercet.errors import SettingError
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.texts import TextSample
from tercet.training.stages.trained import EncoderStartSettings, NumberFormat
from tercet.training.stages.whitening import whitening


class WhitenStage(EncoderStartSettings):
    """The settings of a stage that whitens an encoder's vectors, or a part of the way."""

    rows: RowSettings
    """Whose texts decide the directions and their variance; every kind of rows will do."""

    power: float = Field(default=0.15, ge=0, le=0.5)
    """Every direction is divided by its variance to this power: 0 for nothing, 0.5 for equal variance in all."""

    max_texts: int = Field(default=20_000, ge=2)
    """How many texts are embedded, drawn from all rows."""

    weights: NumberFormat = "float32"
    """How the encoder's weights are stored; the 16-bit formats are for the last stage."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*super().names(), *(source.path for source in self.rows.sources)]


class _Whiten:
    def __init__(self, settings: WhitenStage, context: Context) -> None:
        self._settings, self._context = settings, context
        self._sample = TextSample(settings.rows, context)
        self.inputs = {**settings.describe(context), "rows": self._sample.inputs}

    def run(self) -> dict[str, Any]:
        settings, context = self._settings, self._context
        if not context.processes.is_main:
            return {}
        encoder = Encoder.load(
            **settings.placed(context), device=str(context.processes.device), **settings.encoder.given()
        )
        texts = self._sample.draw(settings.max_texts)
        variance = whiten(encoder, encoder.embed(texts, progress=context.progress), settings.power)
        encoder.dtype = getattr(torch, settings.weights)
        encoder.save(context.folder / KIND.output)
        return {"num_texts": len(texts), "largest_variance": variance[-1], "smallest_variance": variance[0]}


def whiten(encoder: Encoder, vectors: Vectors, power: float) -> list[float]:
    """Divide each direction of an encoder's vectors by its variance to a power, in the encoder's projection.

    Args:
        encoder: Its last layer is changed.
        vectors: The vectors [n, encoder.dim] of texts such as it will see.
        power: 0 for nothing, 0.5 for equal variance.

    Returns:
        The variances, the smallest first.

    Raises:
        SettingError: The encoder does not end with a projection.
    """
    layers = encoder.head.dense_layers
    if not layers or layers[-1].activation != "identity":
        raise SettingError("whiten: is done in a projection, and the encoder ends without one. Set encoder.projection.")
    change, variance = whitening(vectors, power)
    matrix = torch.from_numpy(change)
    with torch.no_grad():
        for parameter in layers[-1].linear.parameters():
            parameter.copy_(matrix.to(parameter.device) @ parameter.double())
    return [float(value) for value in variance]


KIND = Kind(WhitenStage, _Whiten, output="encoder")
