"""Queries and documents, as every adapter embeds them."""

from collections.abc import Iterable
from pathlib import Path

from tercet.encoder.choice import Model, ModelSettings, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors


class Roles:
    """Embeds queries and documents, each with the prompt that the model names for them, else as `embed` does.

    Args:
        model: An encoder by its name, its settings, or an Encoder.
        device: Where it runs; where it is, or a GPU if there is one, when None.
        precision: See `Encoder.embed`.
    """

    def __init__(self, model: Model, *, device: str | None = None, precision: str = "exact") -> None:
        self.encoder = load_encoder(model)
        if device is not None:
            self.encoder.to(device)
        self.precision = precision

    def queries(self, texts: Iterable[str]) -> Vectors:
        """Return the vectors of queries."""
        return self._embed(texts, ("query",))

    def documents(self, texts: Iterable[str]) -> Vectors:
        """Return the vectors of documents."""
        return self._embed(texts, ("document", "passage", "corpus"))

    def _embed(self, texts: Iterable[str], names: tuple[str, ...]) -> Vectors:
        prompts = self.encoder.prompts
        prefix = next((prompts[name] for name in names if prompts.get(name)), None)
        encoder = self.encoder if prefix is None else self.encoder.prefixed(prefix)
        return encoder.embed(list(texts), precision=self.precision)


def name_of(model: Model) -> str:
    """Return what tools may call an encoder."""
    if isinstance(model, Encoder):
        return model.name or "tercet"
    if isinstance(model, ModelSettings):
        return model.model
    return str(model) if isinstance(model, str | Path) else str(model.get("model"))
