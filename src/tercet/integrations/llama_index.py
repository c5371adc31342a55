"""An encoder as LlamaIndex's `BaseEmbedding`: `Settings.embed_model = TercetEmbedding(model="mini")`."""

import asyncio
from typing import Any

from tercet.integrations.roles import Roles, name_of
from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.extras import require

require("llama_index.core", "llamaindex")
from llama_index.core.base.embeddings.base import BaseEmbedding  # noqa: E402
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402


class TercetEmbedding(BaseEmbedding):
    """Embeds texts and queries.

    Args:
        model: An encoder by its name, its settings, or an Encoder.
        device: Where it runs.
        precision: See `Encoder.embed`.
        **options: LlamaIndex's own: `embed_batch_size`, `callback_manager` and others.
    """

    _roles: Roles = PrivateAttr()

    def __init__(
        self, model: Any = DEFAULT_MODEL, *, device: str | None = None, precision: str = "exact", **options: Any
    ) -> None:
        super().__init__(**{"model_name": name_of(model), **options})
        self._roles = Roles(model, device=device, precision=precision)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores it."""
        return "TercetEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        found: list[list[float]] = self._roles.documents(texts).tolist()
        return found

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        found: list[float] = self._roles.queries([query])[0].tolist()
        return found

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)
