"""The sentences that share most words with others (BM25), with the sentences and their index on disk."""

import shutil
import tempfile
import weakref
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tercet.storage.extras import require
from tercet.storage.shards import in_shards

_BLOCK = 8192
"""How many sentences are in memory at a time."""

Numbers = np.ndarray[Any, Any]


class NearestByWords:
    """Finds for sentences the others that share most with them, as bm25s does.

    Sentences, their tokens and their scores are files in a temporary folder, which are mapped. In memory are the
    vocabulary and two numbers per sentence. bm25s looks for the nearest; its own `index` would hold all tokens.

    Args:
        sentences: All sentences; they are read once.
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        self._bm25 = require("bm25s", "synthesis")
        folder = Path(tempfile.mkdtemp(prefix="tercet-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        texts, tokens = _Pieces(folder / "texts", np.uint8), _Pieces(folder / "tokens", np.int32)
        vocabulary: dict[str, int] = {}
        for block in in_shards(iter(sentences), _BLOCK):
            for text, words in zip(block, self._tokens(block), strict=True):
                texts.add(np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8))
                tokens.add([vocabulary.setdefault(word, len(vocabulary)) for word in words])
        self._texts = texts.finish()
        self._index = self._bm25.BM25()
        self._index.nonoccurrence_array = None
        self._index.scores = _scores(tokens.finish(), len(vocabulary), self._index, folder)
        self._index.vocab_dict = vocabulary | {"": len(vocabulary)}
        self._index.unique_token_ids_set = {*self._index.vocab_dict.values()}

    def __call__(self, sentences: list[str], *, first: int, num: int) -> list[list[str]]:
        """Return for each sentence up to `num` others that share a word with it, the nearest first.

        Args:
            sentences: Sentences in their order.
            first: The number of the first of them among all.
            num: How many each gets.
        """
        k = min(num + 1, len(self._texts))
        found, scores = self._index.retrieve(self._tokens(sentences), k=k, show_progress=False)
        return [
            [self._text(i) for i, score in zip(row, points, strict=True) if score > 0 and i != number][:num]
            for number, (row, points) in enumerate(zip(found.tolist(), scores.tolist(), strict=True), first)
        ]

    def _text(self, number: int) -> str:
        return self._texts.block(number, number + 1)[0].tobytes().decode("utf-8", "surrogatepass")

    def _tokens(self, texts: list[str]) -> Any:
        return self._bm25.tokenize(texts, stopwords=None, show_progress=False, return_ids=False)


class _Pieces:
    """Numbers of any lengths, one after another in a file."""

    def __init__(self, file: Path, dtype: Any) -> None:
        self._file, self._dtype, self._ends = file, dtype, array("q", [0])
        self._stream = file.open("wb")
        self._numbers: Numbers = np.empty(0, dtype)

    def add(self, piece: Any) -> None:
        """Write one more."""
        self._stream.write(np.asarray(piece, self._dtype).tobytes())
        self._ends.append(self._ends[-1] + len(piece))

    def finish(self) -> "_Pieces":
        """Map the file, and return what it holds."""
        self._stream.close()
        if self._ends[-1]:
            self._numbers = np.memmap(self._file, self._dtype, mode="r")
        return self

    def __len__(self) -> int:
        return len(self._ends) - 1

    def block(self, first: int, end: int) -> tuple[Numbers, Numbers]:
        """Return the numbers of some pieces, and the length of each."""
        ends = np.array(self._ends[first : end + 1])
        return self._numbers[ends[0] : ends[-1]], np.diff(ends)


def _scores(documents: _Pieces, num_words: int, bm25: Any, folder: Path) -> dict[str, Any]:
    """Return the scores of all words in all documents as bm25s keeps them, in files: by word, then by document."""
    blocks = [(first, min(first + _BLOCK, len(documents))) for first in range(0, len(documents), _BLOCK)]
    num_with, num_tokens = np.zeros(num_words, np.int64), 0
    for first, end in blocks:
        words, _, _ = _counted(*documents.block(first, end))
        num_with += np.bincount(words, minlength=num_words)
        num_tokens += int(documents.block(first, end)[1].sum())
    rarity = np.log(1 + (len(documents) - num_with + 0.5) / (num_with + 0.5))
    places = np.concatenate([[0], np.cumsum(num_with)])
    size = max(int(places[-1]), 1)
    scores: Numbers = np.memmap(folder / "scores", np.float32, mode="w+", shape=(size,))
    numbers: Numbers = np.memmap(folder / "numbers", np.int32, mode="w+", shape=(size,))
    free = places[:-1].copy()
    for first, end in blocks:
        flat, lengths = documents.block(first, end)
        words, own, counts = _counted(flat, lengths)
        longer = 1 - bm25.b + bm25.b * lengths[own] / max(num_tokens / len(documents), 1e-9)
        starts = np.concatenate([[0], np.cumsum(np.bincount(words, minlength=num_words))])[:-1]
        where = free[words] + np.arange(len(words)) - starts[words]
        scores[where] = rarity[words] * counts / (bm25.k1 * longer + counts)
        numbers[where] = own + first
        free += np.bincount(words, minlength=num_words)
    return {"data": scores, "indices": numbers, "indptr": places, "num_docs": len(documents)}


def _counted(flat: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return the different words of each document with their documents and counts, by word and then by document."""
    own = np.repeat(np.arange(len(lengths)), lengths)
    pairs, counts = np.unique(flat.astype(np.int64) * len(lengths) + own, return_counts=True)
    words, documents = np.divmod(pairs, len(lengths))
    return words, documents, counts
