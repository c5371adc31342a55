"""The verb `search`: the texts of a file that are nearest to a query, by exact cosine."""

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from tercet.data.rows.texts import TextFile
from tercet.encoder.model.encoder import Encoder
from tercet.encoder.model.settings import EmbedOptions, Vectors
from tercet.errors import SettingError
from tercet.storage.hashing import sha256_of_json
from tercet.vectors.cache import kept_vectors

CACHE_FOLDER = ".tercet-cache"


@dataclass(frozen=True)
class Hit:
    """A text that was found."""

    score: float
    """The cosine with the query."""

    row: int
    """Which row of the file it is, from 1."""

    text: str


def search(
    query: str,
    texts: TextFile,
    encoder: Encoder,
    *,
    k: int = 5,
    engine: str = "numpy",
    cache: bool = True,
    **options: Unpack[EmbedOptions],
) -> list[Hit]:
    """Return the k texts that are nearest to a query, best first.

    Args:
        query: What to look for.
        texts: Where to look. Their vectors are kept beside the file for the next time.
        encoder: What to embed with.
        k: How many to return.
        engine: `numpy`, or `faiss` where it is installed; both are exact.
        cache: Whether vectors are kept.
        **options: See `EmbedOptions`.

    Raises:
        SettingError: `k` or `engine` is none.
    """
    if k < 1:
        raise SettingError(f"k {k}: is less than one. Ask for at least one text.")
    if engine not in _ENGINES:
        raise SettingError(f"engine {engine!r}: there is none of that name. Known: {', '.join(_ENGINES)}.")
    precision = encoder.resolve_precision(options.get("precision", "exact"))
    options = {**options, "normalize": True, "precision": precision}
    vectors = _vectors_of(texts, encoder, cache, options)
    options["progress"] = False
    scores, rows = _ENGINES[engine](vectors, encoder.embed([query], **options)[0], min(k, len(vectors)))
    wanted = {int(row): float(score) for score, row in zip(scores, rows, strict=True)}
    found = {row: text for row, text in enumerate(texts) if row in wanted}
    return [Hit(score, row + 1, found[row]) for row, score in wanted.items()]


def _vectors_of(texts: TextFile, encoder: Encoder, cache: bool, options: EmbedOptions) -> Vectors:
    settings = [options["precision"], options.get("dims"), encoder.device.type]
    key = sha256_of_json([texts.sha256, encoder.fingerprint(), settings])
    file = texts.path.parent / CACHE_FOLDER / f"{key}.npy"
    return kept_vectors(file if cache else None, lambda: encoder.embed(list(texts), **options))


def _search_numpy(vectors: Vectors, query: Vectors, k: int) -> tuple[Vectors, np.ndarray]:
    scores = vectors @ query
    nearest = np.argpartition(-scores, k - 1)[:k]
    nearest = nearest[np.lexsort((nearest, -scores[nearest]))]
    return scores[nearest], nearest


def _search_faiss(vectors: Vectors, query: Vectors, k: int) -> tuple[Vectors, np.ndarray]:
    try:
        import faiss
    except ImportError as error:
        raise SettingError("engine 'faiss': is not installed. Run: pip install 'tercet[faiss]'") from error
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors))
    scores, rows = index.search(query[None], k)
    return scores[0], rows[0]


_ENGINES = {"numpy": _search_numpy, "faiss": _search_faiss}
