"""Vectors of all texts of a file or list, of length 1; those of many texts are kept in a file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tercet.data.rows.given import TextList
from tercet.data.rows.texts import TextFile, TextFiles
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.storage.files import make_folder
from tercet.storage.hashing import sha256_of_json
from tercet.storage.user_cache import cache_folder
from tercet.vectors.embed import SHARD_TEXTS, embed


def vectors_of(
    texts: TextFile | TextFiles | TextList | Sequence[str], encoder: Encoder, *, precision: str, progress: bool
) -> Vectors:
    """Return the vectors of texts.

    More than one shard of them is kept in the user's cache, so that a run that was killed goes on, and the next one
    with the same texts begins at once; they are mapped into memory.
    """
    given = texts if isinstance(texts, TextFile | TextFiles | TextList) else TextList(texts)
    if given.num_texts <= SHARD_TEXTS:
        return encoder.embed(list(given), precision=precision, normalize=True, progress=progress)
    file = _file(given, encoder, precision)
    if not file.exists():
        make_folder(file.parent)
        source = given.texts if isinstance(given, TextList) else given
        embed(source, out=file, model=encoder, precision=precision, normalize=True, progress=progress)
    return np.asarray(np.load(file, mmap_mode="c"))


def _file(texts: TextFile | TextFiles | TextList, encoder: Encoder, precision: str) -> Path:
    decides = [texts.sha256, encoder.fingerprint(), encoder.resolve_precision(precision), encoder.device.type]
    return cache_folder() / "mining" / f"{sha256_of_json(decides)}.npy"
