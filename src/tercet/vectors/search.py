"""The verb `search`: the texts that are nearest to a query, by exact cosine."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tercet.data.rows.given import GivenTexts, TextList, open_given
from tercet.data.rows.texts import TextFile, TextFiles
from tercet.encoder.choice import Model, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.settings import EmbedOptions
from tercet.errors import InputError, SettingError
from tercet.storage.choices import DEFAULT_MODEL, TextFormat
from tercet.storage.hashing import sha256_of_json
from tercet.vectors.cache import cached_vectors
from tercet.vectors.stored import StoredVectors

CACHE_FOLDER = ".tercet-cache"


@dataclass(frozen=True)
class Hit:
    """A text that was found."""

    score: float
    """The cosine with the query."""

    row: int
    """Which row of the file it is, from 1."""

    text: str

    kept: dict[str, Any] = field(default_factory=dict)
    """What else is kept with the text in a file of vectors."""

    def to_dict(self) -> dict[str, Any]:
        """Return its fields, with what is kept among them."""
        return {"score": self.score, "row": self.row, "text": self.text, **self.kept}


def search(
    query: str,
    texts: "GivenTexts",
    *,
    model: "Model" = DEFAULT_MODEL,
    k: int = 5,
    column: str | None = None,
    format: TextFormat | None = None,
    precision: str = "exact",
    dims: int | None = None,
    cache: bool = True,
    progress: bool = False,
) -> list[Hit]:
    """Return the k texts that are nearest to a query, best first, by exact cosine.

    Args:
        query: What to look for.
        texts: Where to look: a list of texts; a file with one text per row; or vectors that `embed` wrote into Parquet
            (a file, or a folder of them), which are searched as they are, without embedding anything but the query.
            Where a number of these is one bit, the best candidates are embedded again and ranked by exact cosine.
        model: An encoder by its name, its settings, or an Encoder.
        k: How many to return.
        column: Which column of the file holds the text.
        format: How the file is written, where its ending does not tell.
        precision: How texts are embedded; see `embed`.
        dims: Keep only the first numbers of each vector.
        cache: Whether the vectors of a file are kept beside it for the next search.
        progress: Whether a bar is shown.

    Raises:
        SettingError: `k` is less than one.
        InputError: The texts cannot be read.
    """
    if not isinstance(query, str):
        raise InputError(f"query: is of type {type(query).__name__}. Give a string.")
    if k < 1:
        raise SettingError(f"k {k}: is less than one. Ask for at least one text.")
    stored = StoredVectors.open(Path(texts)) if isinstance(texts, str | Path) and str(texts) != "-" else None
    if stored is not None:
        if dims not in (None, stored.about["dims"]):
            raise SettingError(
                f"dims {dims}: the vectors in {texts} have {stored.about['dims']} numbers. Leave it out."
            )
        return _search_stored(query, stored, load_encoder(model), k, precision)
    with open_given(texts, column=column, file_format=format) as opened:
        encoder = load_encoder(model)
        resolved = encoder.resolve_precision(precision)
        options: EmbedOptions = {"precision": resolved, "dims": dims, "normalize": True}
        is_copy = isinstance(texts, str | Path) and opened.path != Path(texts)  # of standard input or a pipe
        keep = cache and not is_copy
        vectors = _vectors_of(opened, encoder, keep, {**options, "progress": progress})
        scores, rows = _nearest(vectors, encoder.embed([query], **options)[0], min(k, len(vectors)))
        wanted = {int(row): float(score) for score, row in zip(scores, rows, strict=True)}
        found = {row: text for row, text in enumerate(opened) if row in wanted}
    return [Hit(score, row + 1, found[row]) for row, score in wanted.items()]


def _search_stored(query: str, stored: StoredVectors, encoder: Encoder, k: int, precision: str) -> list[Hit]:
    if encoder.fingerprint() != stored.about["fingerprint"]:
        raise SettingError(
            f"{stored.path}: has vectors of another model than {encoder.name}. Name theirs with --model, and its "
            "settings with --set."
        )
    options: EmbedOptions = {"precision": precision, "dims": stored.about["dims"], "normalize": True}
    vector = encoder.embed([query], **options)[0]
    scores, rows = stored.nearest(vector, k)
    if stored.is_binary:
        candidates = [record["text"] for record in stored.records(rows)]
        scores = encoder.embed(candidates, **options) @ vector
        order = np.lexsort((rows, -scores))[:k]
        scores, rows = scores[order], rows[order]
    hits = zip(scores, rows, stored.records(rows), strict=True)
    return [Hit(float(score), int(row) + 1, record.pop("text"), record) for score, row, record in hits]


def _vectors_of(texts: TextFile | TextFiles | TextList, encoder: Encoder, keep: bool, options: EmbedOptions) -> Vectors:
    file = None
    if keep and texts.path is not None:
        settings = [options["precision"], options.get("dims"), encoder.device.type]
        key = sha256_of_json([texts.sha256, encoder.fingerprint(), settings])
        file = texts.path.parent / CACHE_FOLDER / f"{key}.npy"
    dim = options.get("dims") or encoder.dim
    return cached_vectors(file, lambda: encoder.embed(list(texts), **options), num=texts.num_texts, dim=dim)


def _nearest(vectors: Vectors, query: Vectors, k: int) -> tuple[Vectors, np.ndarray]:
    scores = vectors @ query
    nearest = np.argpartition(-scores, k - 1)[:k]
    nearest = nearest[np.lexsort((nearest, -scores[nearest]))]
    return scores[nearest], nearest
