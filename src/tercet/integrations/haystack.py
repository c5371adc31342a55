"""Encoders as components of Haystack: `TercetTextEmbedder` for queries, `TercetDocumentEmbedder` for documents."""

from dataclasses import replace
from typing import Any

from tercet.errors import SettingError
from tercet.integrations.roles import Roles
from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.extras import require

require("haystack", "haystack")
from haystack import Document, component, default_from_dict, default_to_dict  # noqa: E402


class _Embedder:
    """What both components have: settings, and an encoder that is loaded by `warm_up`."""

    def __init__(self, model: Any = DEFAULT_MODEL, *, device: str | None = None, precision: str = "exact") -> None:
        self.model, self.device, self.precision = model, device, precision
        self._roles: Roles | None = None

    def warm_up(self) -> None:
        """Load the encoder."""
        self._ready()

    def _ready(self) -> Roles:
        if self._roles is None:
            self._roles = Roles(self.model, device=self.device, precision=self.precision)
        return self._roles

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline's file says of the component."""
        if not isinstance(self.model, str):
            raise SettingError("model: a pipeline's file can only name one. Give the name of a model, or its folder.")
        return default_to_dict(self, model=self.model, device=self.device, precision=self.precision)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Make the component that a pipeline's file describes."""
        return default_from_dict(cls, data)


@component
class TercetTextEmbedder(_Embedder):
    """Embeds a query.

    Args:
        model: An encoder by its name, its settings, or an Encoder.
        device: Where it runs.
        precision: See `Encoder.embed`.
    """

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        """Return the vector of a query, as `embedding`."""
        return {"embedding": self._ready().queries([text])[0].tolist()}


@component
class TercetDocumentEmbedder(_Embedder):
    """Embeds documents by their content.

    Args:
        model: An encoder by its name, its settings, or an Encoder.
        device: Where it runs.
        precision: See `Encoder.embed`.
    """

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Return the documents with their vectors."""
        vectors = self._ready().documents([document.content or "" for document in documents]).tolist()
        return {"documents": [replace(d, embedding=v) for d, v in zip(documents, vectors, strict=True)]}
