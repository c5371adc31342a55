"""Which encoder is meant: a name, settings, or one that is loaded already."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import model_validator

from tercet.encoder.model.settings import EncoderSettings
from tercet.errors import SettingError
from tercet.storage.settings import Settings, checked

if TYPE_CHECKING:
    from tercet.encoder.encoder import Encoder

logger = logging.getLogger("tercet")

Model: TypeAlias = "str | Path | Mapping[str, Any] | ModelSettings | Encoder"
"""An embedded name (`mini`), a folder, a hub id, settings with such a name, or an Encoder."""


class ModelSettings(Settings):
    """Which encoder it is. A text alone stands for `{model: TEXT}`."""

    model: str
    """A model by its name: embedded, a folder, or a hub id."""

    revision: str | None = None
    """Its branch, tag or commit on the hub."""

    convert_pickle: bool = False
    """Whether a model that has only pickled weights may be converted, weights only."""

    tokenizer: str | None = None
    """The tokenizer of a fresh model (`random:bert-mini`), or another one than the model's own."""

    encoder: EncoderSettings = EncoderSettings()
    """Its readout, prompt, max_tokens and so on; what is not given is as the model has it."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"model": str(value)} if isinstance(value, str | Path) else value

    def load(self, *, device: str | None = None, seed: int = 0) -> "Encoder":
        """Load it."""
        from tercet.encoder.encoder import Encoder

        return Encoder.load(
            self.model,
            tokenizer=self.tokenizer,
            device=device,
            revision=self.revision,
            convert_pickle=self.convert_pickle,
            seed=seed,
            **self.encoder.given(),
        )


def load_encoder(model: "Model") -> "Encoder":
    """Return the encoder that is meant.

    Raises:
        ModelError: The model cannot be found, read or trusted.
        SettingError: A setting is unknown or does not fit it.
    """
    from tercet.encoder.encoder import Encoder

    if isinstance(model, Encoder):
        return model
    if not isinstance(model, str | Path | Mapping | ModelSettings):
        raise SettingError(f"model: is of type {type(model).__name__}. Give a name, a folder, settings, or an Encoder.")
    encoder = checked(ModelSettings, model).load()
    logger.info("%r on %s, reads %s tokens", encoder, encoder.device, f"{encoder.tokens.max_tokens:,}")
    return encoder
