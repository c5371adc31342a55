"""Vectors of texts that an encoder computes once and for all: on disk, in shards, for every stage and run that asks."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tercet.data.reading.entries import unreadable
from tercet.distributed.settings import ClusterSettings
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import Vectors
from tercet.errors import InputError
from tercet.storage.files import make_folder
from tercet.storage.hashing import text_key
from tercet.storage.manifest import forget, recorded_write
from tercet.storage.progress import progress_bar
from tercet.storage.shards import in_shards
from tercet.vectors.kept import read_kept
from tercet.vectors.spread_encoder import spread_encoder

logger = logging.getLogger("tercet")

Keys = NDArray[np.int64]

_SHARD_TEXTS = 8192

_MAX_OPEN = 128
"""How many shards are open at a time: a process may have few files open."""


class RememberedVectors:
    """The vectors of one encoder, in 16 bits, by the keys of their texts. A shard is a file that is never changed.

    Args:
        folder: Where they are kept, below a name that says which encoder and precision they are of.
        encoder: What embeds texts that have no vector yet.
        precision: How it does.
    """

    def __init__(self, folder: Path, encoder: Encoder, *, precision: str) -> None:
        self._encoder = encoder
        self._precision = encoder.resolve_precision(precision)
        self._folder = folder / f"{encoder.fingerprint()[:16]}-{self._precision}"
        self._dtype = np.dtype([("key", np.int64), ("vector", np.float16, (encoder.dim,))])
        self._mapped = lru_cache(_MAX_OPEN)(_map)
        self._checked: set[str] = set()

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self._encoder.dim

    def add(
        self,
        texts: Callable[[], Iterable[str]],
        *,
        label: str,
        cluster: ClusterSettings | None = None,
        progress: bool = False,
    ) -> Keys:
        """Embed all texts that have no vector yet, and return the keys of all, each once.

        Killed and called again, it goes on after the last finished shard.

        Args:
            texts: Gives the texts from the start, as often as it is called.
            label: What the bar says.
            cluster: Whose workers embed; this process where None.
            progress: Whether it is shown.
        """
        self._open()
        keys = np.fromiter(dict.fromkeys(map(text_key, texts())), np.int64)
        new = set(np.setdiff1d(keys, self._keys).tolist())
        with progress_bar(label, total=len(keys), unit="texts", enabled=progress) as advance:
            advance(len(keys) - len(new), earlier=True)
            shards = list[list[str]]()

            def new_shards() -> Iterator[list[str]]:
                for shard in in_shards(_taken(texts(), new), _SHARD_TEXTS):
                    shards.append(shard)
                    yield shard

            num_cut = 0
            if new:
                with spread_encoder(self._encoder, cluster) as encoder:
                    for embedded in encoder.embed_each(new_shards(), precision=self._precision, progress=advance):
                        self._write(shards.pop(0), embedded.vectors)
                        num_cut += int(embedded.truncated.sum())
        if num_cut:
            logger.warning("%s: %s texts were cut to %s tokens", label, f"{num_cut:,}", self._encoder.tokens.max_tokens)
        self._open()
        return keys

    def __call__(self, keys: Keys) -> Vectors:
        """Return the vectors of texts by their keys, which have been added before.

        Raises:
            InputError: One has no vector any more: somebody removed a shard.
        """
        first, behind = (np.searchsorted(self._keys, keys, side=side) for side in ("left", "right"))
        if num_missing := np.count_nonzero(first == behind):
            raise InputError(f"{self._folder}: {num_missing:,} texts have no vector here any more. Run it again.")
        places = self._order[first]
        numbers = np.searchsorted(self._ends, places, side="right")
        vectors = np.empty((len(keys), self.dim), np.float32)
        starts = np.concatenate([[0], self._ends])
        for number in np.unique(numbers):
            here = numbers == number
            vectors[here] = self._mapped(self._files[number])["vector"][places[here] - starts[number]]
        return vectors

    def _write(self, texts: Sequence[str], vectors: Vectors) -> None:
        shard = np.empty(len(texts), self._dtype)
        shard["key"] = [text_key(text) for text in texts]
        shard["vector"] = vectors
        make_folder(self._folder)
        name = hashlib.sha256(shard["key"].tobytes()).hexdigest()  # another run's shard may begin with the same text
        with recorded_write(self._folder / f"{name}.npy") as stream:
            np.save(stream, shard)

    def _open(self) -> None:
        self._mapped.cache_clear()
        found = {file: keys for file in sorted(self._folder.glob("*.npy")) if (keys := self._read(file)) is not None}
        self._files = [*found]
        keys = np.concatenate([np.empty(0, np.int64), *found.values()])
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._ends = np.cumsum([len(part) for part in found.values()], dtype=np.int64)

    def _read(self, file: Path) -> Keys | None:
        """Return the keys of a shard; None where it cannot be used."""
        try:
            keys = read_kept(file, dtype=self._dtype, shape=(None,), checked=file.name in self._checked)["key"].copy()
        except OSError as error:  # the shard itself may be good
            raise unreadable(file, error) from error
        except ValueError as error:
            logger.warning("%s cannot be used and is made again: %s", file, error)
            forget(file)
            file.unlink()
            return None
        self._checked.add(file.name)
        return keys


def _map(file: Path) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    return np.asarray(np.load(file, mmap_mode="r"))


def _taken(texts: Iterable[str], wanted: set[int]) -> Iterator[str]:
    """Yield the texts whose keys are wanted, each once."""
    for text in texts:
        key = text_key(text)
        if key in wanted:
            wanted.remove(key)
            yield text
