"""The stage `shrink`: a T5 without the pieces and layers that it can do without, for others to start from."""

from typing import Any

from pydantic import Field

from tercet.data.rows.settings import RowSettings
from tercet.encoder.generator import keep_layers, keep_tokens, load_generator, save_generator
from tercet.encoder.model.pieces import keep_pieces
from tercet.encoder.model.prompts import SYNTHESIS_TEMPLATES, template_pieces
from tercet.encoder.model.templates import LABELS
from tercet.storage.files import atomic_folder
from tercet.training.stages.generator import OUTPUT
from tercet.training.stages.stage import Context, Kind
from tercet.training.stages.texts import check_end, different_texts, open_texts
from tercet.training.stages.trained import StartSettings


class ShrinkStage(StartSettings):
    """The settings of a stage that makes a T5 with its language-model head smaller. Nothing is trained."""

    rows: RowSettings
    """Whose texts show which pieces are needed; every kind of rows will do."""

    num_pieces: int = Field(ge=8)
    """How many pieces stay: those that the texts have most often, all single characters and special tokens, and what
    the templates of a synthesizer need."""

    encoder_layers: list[int] | None = None
    """Which of the encoder's layers stay, from 0 on; null for all."""

    decoder_layers: list[int] | None = None
    """Which of the decoder's layers stay, from 0 on; null for all."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*super().names(), *(source.path for source in self.rows.sources)]


class _Shrink:
    def __init__(self, settings: ShrinkStage, context: Context) -> None:
        self._settings, self._context = settings, context
        self._rows = open_texts(settings.rows, context)
        check_end(self._rows, context)
        self.inputs = {**settings.describe(context), "rows": self._rows.describe()}

    def run(self) -> dict[str, Any]:
        settings, context = self._settings, self._context
        if not context.processes.is_main:
            return {}
        model, tokenizer = load_generator(**settings.placed(context))
        needed = [*LABELS, *(piece for template in SYNTHESIS_TEMPLATES.values() for piece in template_pieces(template))]
        texts = different_texts(self._rows)
        smaller, kept = keep_pieces(tokenizer, texts, num_pieces=settings.num_pieces, needed=needed)
        keep_tokens(model, kept)
        if settings.encoder_layers is not None:
            keep_layers(model, "encoder", settings.encoder_layers)
        if settings.decoder_layers is not None:
            keep_layers(model, "decoder", settings.decoder_layers)
        with atomic_folder(context.folder / KIND.output) as folder:
            save_generator(model, smaller, folder)
        return {"num_pieces": len(kept), "num_parameters": model.num_parameters()}


KIND = Kind(ShrinkStage, _Shrink, output=OUTPUT, rows="texts")
