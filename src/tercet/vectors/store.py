"""Texts to vectors, each text embedded once: what tasks, dev scores and comparisons embed with."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors, unit
from tercet.errors import InputError, SettingError
from tercet.storage.hashing import TextsDigest, sha256_of_json
from tercet.storage.progress import progress_bar
from tercet.storage.user_cache import cache_folder
from tercet.vectors.cache import cached_vectors
from tercet.vectors.whitening import whitening


class TextEncoder(Protocol):
    """Anything that embeds a list of texts: an Encoder, a SentenceTransformer, an API client."""

    def encode(self, sentences: list[str]) -> Any:
        """Return one vector for each text."""


class VectorStore:
    """Texts to vectors, each text embedded once; on disk too where there is a folder and a fingerprint.

    Args:
        encoder: What embeds.
        precision: The precision of an Encoder.
        cache: Whether vectors of an Encoder are kept in the user's cache, or the folder that keeps them.
        progress: Whether a bar with the task's name is shown.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        *,
        precision: str = "exact",
        cache: bool | str | Path = False,
        progress: bool = False,
    ) -> None:
        self.encoder = encoder
        self.precision = precision
        self.progress = progress
        self.label = ""
        self.precisions: tuple[str, ...] = (precision,)
        self.num_parameters: int | None = None
        self._vectors: dict[str, Vectors] = {}
        self._cache: Path | None = None
        if isinstance(encoder, Encoder):
            self.precisions = _precisions_of(encoder, precision)
            self.num_parameters = encoder.num_parameters
            self._cache = _folder_of(cache)
            self._key = f"{encoder.fingerprint()} {encoder.device.type}" if cache else ""
        self._longest: dict[str, int] = {}
        self._truncated: dict[str, bool] = {}
        self._asked: set[str] = set()
        self._whitening: tuple[Vectors, Vectors] | None = None
        self._dims: int | None = None
        self._is_unit = isinstance(encoder, Encoder) and encoder.head.normalize

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, in their order."""
        unique = list(dict.fromkeys(texts))
        self._asked.update(unique)
        if any(text not in self._vectors for text in unique):
            self._fill(unique)
        vectors = np.stack([self._vectors[text] for text in texts])
        if self._dims is not None:
            vectors = vectors[:, : self._dims]
            vectors = unit(vectors) if self._is_unit else vectors
        if self._whitening is None:
            return vectors
        mean, change = self._whitening
        return np.asarray((vectors - mean) @ change, np.float32)

    @contextlib.contextmanager
    def whitened(self) -> Iterator[None]:
        """Give centred and whitened vectors while the block runs, by those of the texts that were asked for lately.

        These are the different texts since the last call of `take_num_truncated`.
        """
        if len(self._asked) > 1:
            vectors = np.stack([self._vectors[text] for text in sorted(self._asked)])
            self._whitening = vectors.mean(0, dtype=np.float64), whitening(vectors)
        try:
            yield
        finally:
            self._whitening = None

    @contextlib.contextmanager
    def cut_to(self, dims: int) -> Iterator[None]:
        """Give only the first numbers of vectors while the block runs, of length 1 where whole vectors have it."""
        self._dims = dims
        try:
            yield
        finally:
            self._dims = None

    def _fill(self, unique: list[str]) -> None:
        def embed_new() -> Vectors:
            new = [text for text in unique if text not in self._vectors]
            self._vectors |= dict(zip(new, self._embed(new), strict=True))
            return np.stack([self._vectors[text] for text in unique])

        dim = self.encoder.dim if isinstance(self.encoder, Encoder) else 0  # of others nothing is kept
        vectors = cached_vectors(self._file(unique), embed_new, num=len(unique), dim=dim)
        self._vectors |= dict(zip(unique, vectors, strict=True))

    def _file(self, unique: list[str]) -> Path | None:
        if self._cache is None:
            return None
        digest = TextsDigest()
        for text in unique:
            digest.add(text)
        return self._cache / f"{sha256_of_json([self._key, self.precision, digest.hexdigest()])}.npy"

    def _embed(self, texts: list[str]) -> Vectors:
        if isinstance(self.encoder, Encoder):
            with progress_bar(self.label, total=len(texts), unit="texts", enabled=self.progress) as advance:
                return self.encoder.embed(texts, precision=self.precision, progress=advance)
        vectors = np.asarray(self.encoder.encode(texts), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise InputError(f"encode gave shape {vectors.shape} for {len(texts)} texts. Give one row per text.")
        if not np.isfinite(vectors).all():
            row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
            raise InputError(f"the vector of {texts[row]!r} is not finite. Check the encoder.")
        return vectors

    def take_num_truncated(self) -> int | None:
        """Return how many of the different texts since the last call were cut; None where the encoder does not say."""
        asked, self._asked = self._asked, set()
        if not isinstance(self.encoder, Encoder):
            return None
        new = [text for text in asked if text not in self._truncated]
        self._truncated |= dict(zip(new, self.encoder.tokens(new)[1], strict=True))
        return sum(self._truncated[text] for text in asked)

    def compute(self, texts: Sequence[str], *, precision: str, batch: int | None) -> None:
        """Embed texts, about so many at once or as the encoder likes, and keep nothing."""
        if isinstance(self.encoder, Encoder):
            if batch is None:
                self.encoder.embed(texts, precision=precision)
                return
            if texts[0] not in self._longest:  # found out once, in the round that warms up
                self._longest[texts[0]] = max(map(len, self.encoder.tokens(texts)[0]))
            self.encoder.embed(texts, precision=precision, max_batch_tokens=batch * self._longest[texts[0]])
        else:
            for start in range(0, len(texts), batch or len(texts)):
                self.encoder.encode(list(texts[start : start + (batch or len(texts))]))

    @property
    def on_gpu(self) -> bool:
        """Whether an Encoder runs on a GPU."""
        return isinstance(self.encoder, Encoder) and self.encoder.device.type == "cuda"

    def num_tokens(self, texts: Sequence[str]) -> float | None:
        """Return how many tokens an Encoder reads of a text on average; None where the encoder does not say."""
        if not isinstance(self.encoder, Encoder):
            return None
        return sum(map(len, self.encoder.tokens(texts)[0])) / len(texts)


def _folder_of(cache: bool | str | Path) -> Path | None:
    if isinstance(cache, bool):
        return cache_folder() / "vectors" if cache else None
    return Path(cache)


def _precisions_of(encoder: Encoder, usual: str) -> tuple[str, ...]:
    """Return the usual precision and then the others that the encoder has."""
    found = [usual]
    for level in ("exact", "fast", "int8"):
        with contextlib.suppress(SettingError):
            found.append(encoder.resolve_precision(level))
    return tuple(dict.fromkeys(found))
