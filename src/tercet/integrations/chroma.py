"""An encoder as Chroma's embedding function: `client.create_collection("x", embedding_function=...)`."""

from typing import TYPE_CHECKING, Any

from tercet.errors import SettingError
from tercet.integrations.roles import Roles
from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.extras import require

require("chromadb", "chroma")
from chromadb import Documents, EmbeddingFunction, Embeddings  # noqa: E402
from chromadb.utils.embedding_functions import register_embedding_function  # noqa: E402

if TYPE_CHECKING:
    from chromadb.api.types import Space


@register_embedding_function
class TercetEmbeddingFunction(EmbeddingFunction[Documents]):
    """Embeds the documents of a collection, and queries. Collections are stored with the name of the model.

    Args:
        model: An encoder by its name, or its folder.
        device: Where it runs.
        precision: See `Encoder.embed`.
    """

    def __init__(self, model: str = DEFAULT_MODEL, *, device: str | None = None, precision: str = "exact") -> None:
        if not isinstance(model, str):
            raise SettingError("model: Chroma stores its name with a collection. Give a name or a folder.")
        self._config = {"model": model, "device": device, "precision": precision}
        self._roles = Roles(model, device=device, precision=precision)

    def __call__(self, input: Documents) -> Embeddings:
        """Return the vectors of documents."""
        return list(self._roles.documents(input))

    def embed_query(self, input: Documents) -> Embeddings:
        """Return the vectors of queries."""
        return list(self._roles.queries(input))

    @staticmethod
    def name() -> str:
        """Return the name under which Chroma stores it."""
        return "tercet"

    def default_space(self) -> "Space":
        """Return how vectors are compared."""
        return "cosine"

    def get_config(self) -> dict[str, Any]:
        """Return what makes the same function again."""
        return dict(self._config)

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> "TercetEmbeddingFunction":
        """Make the function that a collection was stored with."""
        return TercetEmbeddingFunction(**config)
