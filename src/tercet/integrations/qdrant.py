"""Points and queries for Qdrant: `client.upsert("x", embedder.points(texts))`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tercet.integrations.roles import Roles
from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.extras import require
from tercet.storage.texts import list_of_texts

require("qdrant_client", "qdrant")
from qdrant_client.models import Distance, PointStruct, VectorParams  # noqa: E402

if TYPE_CHECKING:
    from tercet.encoder.choice import Model


class TercetEmbedder:
    """Makes what Qdrant's client wants of texts.

    Args:
        model: An encoder by its name, its settings, or an Encoder.
        device: Where it runs.
        precision: See `Encoder.embed`.
    """

    def __init__(self, model: "Model" = DEFAULT_MODEL, *, device: str | None = None, precision: str = "exact") -> None:
        self._roles = Roles(model, device=device, precision=precision)

    @property
    def vectors_config(self) -> VectorParams:
        """What `create_collection` wants to know about the vectors."""
        return VectorParams(size=self._roles.encoder.dim, distance=Distance.COSINE)

    def points(
        self,
        texts: Iterable[str],
        *,
        ids: Iterable[int | str] | None = None,
        payloads: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[PointStruct]:
        """Return a point for each text, for `upsert`.

        Args:
            texts: The documents.
            ids: Their ids; 0, 1, 2 ... where None.
            payloads: What is stored with each of them, beside the text itself as `text`.
        """
        given = list_of_texts(texts)
        vectors = self._roles.documents(given).tolist()
        numbers = range(len(given)) if ids is None else ids
        more: Sequence[Mapping[str, Any]] = [{}] * len(given) if payloads is None else payloads
        return [
            PointStruct(id=number, vector=vector, payload={"text": text, **payload})
            for number, vector, text, payload in zip(numbers, vectors, given, more, strict=True)
        ]

    def query(self, text: str) -> list[float]:
        """Return the vector of a query, for `query_points`."""
        found: list[float] = self._roles.queries([text])[0].tolist()
        return found
