"""The stage `stitch`: a T5 encoder made of layers of a BERT, for others to start from."""

from typing import Any

from pydantic import Field

from tercet.data.rows.settings import RowSettings
from tercet.encoder.folder.names import find_folder
from tercet.encoder.model.tokens import load_tokenizer
from tercet.encoder.stitch import stitch
from tercet.training.stages.model import StageModel
from tercet.training.stages.stage import Context, Kind, StageSettings
from tercet.training.stages.texts import TextSample


class StitchStage(StageSettings):
    """The settings of a stage that joins layers of a BERT into a T5."""

    model: StageModel
    """The BERT."""

    tokenizer: str
    """The T5's tokenizer: a name, or `@NAME` of an earlier stage."""

    layers: list[int] = Field(min_length=1)
    """Which of its layers are taken, the first one being 0."""

    feed_forward: int | None = Field(default=None, ge=1, exclude_if=lambda num: num is None)
    """How many hidden numbers the feed-forwards keep, those that count most; all where null."""

    rows: RowSettings
    """Whose texts show what the layers read; every kind of rows will do."""

    max_texts: int = Field(default=2000, ge=2)
    """How many texts are read, drawn from all rows."""

    center: float = Field(default=1.0, ge=0, le=1)
    """How much of the mean over these texts is subtracted from the vectors."""

    max_tokens: int = Field(default=256, ge=2)
    """The most that the T5 reads of a text."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*self.model.names(), self.tokenizer, *(source.path for source in self.rows.sources)]


class _Stitch:
    def __init__(self, settings: StitchStage, context: Context) -> None:
        self._settings, self._context = settings, context
        self._sample = TextSample(settings.rows, context)
        self.inputs = {
            "model": settings.model.describe(context),
            "tokenizer": context.describe_model(settings.tokenizer, weights=False),
            "rows": self._sample.inputs,
        }

    def run(self) -> dict[str, Any]:
        settings, context = self._settings, self._context
        if not context.processes.is_main:
            return {}
        texts = self._sample.draw(settings.max_texts)
        encoder = stitch(
            settings.model.load_in(context),
            load_tokenizer(find_folder(context.place(settings.tokenizer), weights=False)),
            layers=settings.layers,
            texts=texts,
            feed_forward=settings.feed_forward,
            center=settings.center,
            max_tokens=settings.max_tokens,
        )
        encoder.save(context.folder / KIND.output)
        return {"num_texts": len(texts)}


KIND = Kind(StitchStage, _Stitch, output="encoder", rows="texts")
