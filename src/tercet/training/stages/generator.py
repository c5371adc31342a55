"""What all stages that train a T5 to write have in common: where it starts, its precision, and the result."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import torch
from pydantic import Field, model_validator

from tercet.data.feeding.sources import Rows
from tercet.encoder.forward.engine import AUTOCAST, resolve_precision
from tercet.encoder.generator import load_generator, save_generator
from tercet.storage.files import atomic_folder
from tercet.training.loop.loop import Evaluate
from tercet.training.objectives.conditional import ConditionalGeneration
from tercet.training.objectives.gather import Gather
from tercet.training.stages.stage import Context
from tercet.training.stages.trained import LearningSettings, NumberFormat, other_dropout, train_on_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_Objective = TypeVar("_Objective", bound=ConditionalGeneration)

OUTPUT = "model"
"""What such a stage calls its output: a folder that transformers reads."""


class GeneratorSettings(LearningSettings):
    """The settings of every stage that trains a T5 to write. Its output is a T5, which has no readout yet."""

    precision: Literal["exact", "fast", "auto"] = "exact"
    """`exact` (fp32), `fast` (bf16 by autocast; weights in fp32), or `auto` (`fast` where the machine has bf16)."""

    encoder_layers: list[int] | None = Field(default=None, exclude_if=lambda layers: layers is None)
    """Which of the start's encoder layers it keeps, from 0 on; null for all."""

    decoder_layers: int | None = Field(default=None, ge=1)
    """How many layers the decoder has, if not as many as the start's; those that the start lacks are fresh. Then the
    start may be an encoder alone."""

    weights: NumberFormat | Literal["int8"] = "float32"  # type: ignore[assignment]  # wider than an encoder's
    """How the model's weights are stored. The 16-bit formats are for the last stage, and so is `int8`: 8 bits with a
    scale for each row, which Tercet alone reads."""

    @model_validator(mode="after")
    def _no_encoder(self) -> Self:
        if self.lora is not None or self.trajectory is not None:
            raise ValueError("lora and trajectory are for encoders: here all weights of a T5 are trained to write")
        return self


class TrainedGenerator(Generic[_Objective]):
    """The work of a stage that trains a T5 to write; a kind says what it learns from and what it optimises.

    Args:
        settings: What was chosen.
        context: The run.
        rows: What it learns from.
    """

    objective: Callable[..., _Objective]
    """Makes what is optimised of the model, its tokenizer and the settings."""

    def __init__(self, settings: GeneratorSettings, context: Context, rows: Rows) -> None:
        self.settings, self.context, self.rows = settings, context, rows
        self.inputs = settings.describe(context)
        self.inputs["rows"] = rows.describe()

    def score(self, objective: _Objective, tokenizer: "PreTrainedTokenizerBase") -> Evaluate | None:
        """Return the function that scores the model while it trains; None for none."""
        return None

    def run(self) -> dict[str, Any]:
        """Train, and write the model."""
        settings, context, processes = self.settings, self.context, self.context.processes
        model, tokenizer = load_generator(
            **settings.placed(context), encoder_layers=settings.encoder_layers, decoder_layers=settings.decoder_layers
        )
        model.to(processes.device)  # type: ignore[arg-type]  # its decorator hides the argument
        precision = resolve_precision(settings.precision, model_type=model.config.model_type, device=processes.device)
        gather = Gather() if processes.world > 1 else None
        objective = self.objective(model, tokenizer, settings, dtype=AUTOCAST[precision], gather=gather)
        with other_dropout(model, settings.dropout):
            score = self.score(objective, tokenizer)
            result = train_on_rows(objective, self.rows, settings=settings, context=context, evaluate=score)
        if processes.is_main:
            with atomic_folder(context.folder / OUTPUT) as folder:
                save_generator(model, tokenizer, folder, dtype=getattr(torch, settings.weights))
        return {"num_steps": result.num_steps, "best": result.best}
