"""An encoder as LangChain's `Embeddings`: `InMemoryVectorStore(TercetEmbeddings("mini"))`."""

from typing import TYPE_CHECKING

from tercet.integrations.roles import Roles
from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.extras import require

require("langchain_core", "langchain")
from langchain_core.embeddings import Embeddings  # noqa: E402

if TYPE_CHECKING:
    from tercet.encoder.choice import Model


class TercetEmbeddings(Embeddings):
    """Embeds documents and queries.

    Args:
        model: An encoder by its name, its settings, or an Encoder.
        device: Where it runs.
        precision: See `Encoder.embed`.
    """

    def __init__(self, model: "Model" = DEFAULT_MODEL, *, device: str | None = None, precision: str = "exact") -> None:
        self._roles = Roles(model, device=device, precision=precision)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of documents."""
        found: list[list[float]] = self._roles.documents(texts).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        found: list[float] = self._roles.queries([text])[0].tolist()
        return found
