"""Sentences to embed, and a tokenizer for them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

VOCABULARY = 16_000
SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in ("a", "e", "i", "o", "u", "an", "er", "in")]


def load_sentences(num: int) -> tuple[list[str], str]:
    """Return so many different sentences and where they are from: a random draw, the same every time."""
    texts, source = _all_sentences()
    chosen = np.random.default_rng(0).choice(len(texts), min(num, len(texts)), replace=False)
    return [texts[i] for i in chosen], source


def train_tokenizer(
    texts: list[str] | None = None, *, num_words: int | None = None, words: Sequence[str] = ()
) -> "PreTrainedTokenizerBase":
    """Return a T5 tokenizer whose pieces are learned from texts, or from all the sentences there are.

    Args:
        texts: What it learns from.
        num_words: How many words it has, filled up with ones that no text has; None for the pieces alone.
        words: Words that are one piece each, whatever the texts are.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import T5Tokenizer

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False
    )
    tokenizer.train_from_iterator(_all_sentences()[0] if texts is None else texts, trainer)
    pieces = [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    pieces += [(f"▁{word}", 0.0) for word in words if f"▁{word}" not in dict(pieces)]
    return T5Tokenizer(
        vocab=pieces, extra_ids=100 if num_words is None else num_words - len(pieces), model_max_length=256
    )


def _all_sentences() -> tuple[list[str], str]:
    data = os.environ.get("TERCET_DATA")
    folder = Path(data, "eval", "senteval", "STS") if data else None
    if folder is None or not folder.is_dir():
        return _generated(20_000), "generated words, as TERCET_DATA is not set (lengths as in STS)"
    rows = [
        columns[-2:]
        for file in sorted(folder.rglob("STS.input.*.txt")) + sorted(folder.rglob("sts-dev.csv"))
        for columns in (line.split("\t") for line in file.read_text(encoding="utf-8").split("\n"))
        if len(columns) in (2, 7)
    ]
    return sorted({text.strip() for row in rows for text in row} - {""}), "drawn from all of STS in TERCET_DATA"


def _generated(num: int) -> list[str]:
    """Made-up words, common ones often and rare ones rarely; as many a sentence as in STS: 11 in the middle."""
    rng = np.random.default_rng(1)
    words = ["".join(rng.choice(SYLLABLES, rng.integers(1, 4))) for _ in range(8000)]
    common = 1 / np.arange(1, len(words) + 1)
    lengths = np.clip(rng.lognormal(np.log(11), 0.5, num).astype(int), 2, 40)
    drawn = rng.choice(len(words), lengths.sum(), p=common / common.sum())
    parts = np.split(drawn, np.cumsum(lengths)[:-1])
    return sorted({" ".join(words[i] for i in part).capitalize() + "." for part in parts})
