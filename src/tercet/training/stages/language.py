"""A language model around an encoder that is trained, for objectives that score words."""

from typing import TYPE_CHECKING

from tercet.encoder.encoder import Encoder
from tercet.encoder.language import Kind, language_model
from tercet.errors import SettingError
from tercet.training.stages.stage import Context
from tercet.training.stages.trained import TrainedSettings, set_dropout

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SHARED = "what scores words shares the encoder's layers, which lora would freeze"
"""Why such an objective does not go with LoRA."""


def trained_language_model(
    encoder: Encoder, settings: TrainedSettings, context: Context, *, kind: Kind, tied: bool = True
) -> "PreTrainedModel":
    """Return the language model around an encoder of a stage, with the stage's dropout."""
    model = language_model(encoder, kind=kind, tied=tied, **settings.placed(context))
    set_dropout(model, settings.dropout)
    return model


def refuse_shards(context: Context, name: str) -> None:
    """Raise SettingError where weights are divided among processes: those that are shared cannot be."""
    if context.processes.shards:
        raise SettingError(f"stages.{context.name}.{name}: does not go with FSDP. Take processes without it.")
