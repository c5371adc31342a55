"""Tiny models and tokenizers, built here: no test needs the network."""

import os
from collections import Counter

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import BertTokenizer, ByT5Tokenizer, RobertaTokenizer, T5Tokenizer

torch.set_num_threads(1)  # tiny models: threads would only wait for each other

SENTENCES = [
    "A man is playing a guitar on the stage.",
    "Somebody plays an instrument in front of a crowd.",
    "",
    "The stock market fell sharply on Monday.",
    "Stocks dropped.",
    "Two dogs run through deep snow, and a third one is waiting for them near the old wooden fence by the river.",
    "  leading and trailing spaces  ",
    "Ünïcödé, 日本語 and emoji 🙂",
]


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory):
    """Keep what is cached out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        yield


@pytest.fixture(scope="session")
def sentences():
    return SENTENCES


def _pieces(size: int, corpus: list[str]) -> list[tuple[str, float]]:
    """Return the letters of a corpus and those parts of its words that save most, the same ones in every run."""
    words = ["▁" + word for line in corpus for word in line.split()]
    saved: Counter[str] = Counter()
    for word in words:
        saved.update({word[i:j]: j - i - 1 for i in range(len(word)) for j in range(i + 2, len(word) + 1)})
    letters = sorted({letter for word in words for letter in word})
    longer = sorted(saved, key=lambda piece: (-saved[piece], piece))
    pieces = ["<pad>", "</s>", "<unk>", *longer[: size - 3 - len(letters)], *letters]
    return [(piece, -float(rank)) for rank, piece in enumerate(pieces)]


@pytest.fixture(scope="session")
def t5_tokenizer():
    corpus = [
        *SENTENCES,
        "Question: what can we draw from the above sentence? true false",
        "abcdefghijklmnopqrstuvwxyz",
    ]
    return T5Tokenizer(vocab=_pieces(300, corpus), extra_ids=4, model_max_length=64)


@pytest.fixture(scope="session")
def label_tokenizer():
    """A tokenizer for a generator/discriminator: `true` and `false` are one token each."""
    pieces = _pieces(120, [*SENTENCES, 'if " Write two sentences that are? 12', "abcdefghijklmnopqrstuvwxyz"])
    return T5Tokenizer(vocab=[*pieces, ("▁true", 0.0), ("▁false", 0.0)], extra_ids=4, model_max_length=64)


@pytest.fixture(scope="session")
def synthesizer_folder(label_tokenizer, tmp_path_factory):
    """Return a function that makes the folder of a tiny random generator/discriminator of a family."""
    from tercet.encoder.generator import load_generator, save_generator

    root = tmp_path_factory.mktemp("synthesizers")
    label_tokenizer.save_pretrained(root / "tokenizer")

    def make(family="t5"):
        folder = root / family
        if not folder.exists():
            model, tokenizer = load_generator(f"random:{family}-tiny", tokenizer=root / "tokenizer")
            save_generator(model, tokenizer, folder)
        return folder

    return make


@pytest.fixture(scope="session")
def bert_tokenizer():
    words = sorted({word for text in SENTENCES for word in text.lower().replace(".", " .").replace(",", " ,").split()})
    letters = [*"abcdefghijklmnopqrstuvwxyz:?", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
    tokens = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters])
    return BertTokenizer(vocab={token: i for i, token in enumerate(tokens)}, model_max_length=64)


@pytest.fixture(scope="session")
def roberta_tokenizer():
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocab = {token: i for i, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    return RobertaTokenizer(vocab=vocab, merges=[], model_max_length=64)


@pytest.fixture(scope="session")
def byt5_tokenizer():
    return ByT5Tokenizer(extra_ids=10, model_max_length=256)


@pytest.fixture(scope="session")
def tokenizers(t5_tokenizer, bert_tokenizer, roberta_tokenizer, byt5_tokenizer):
    return {
        "t5": t5_tokenizer,
        "t5-1.1": t5_tokenizer,
        "mt5": t5_tokenizer,
        "umt5": t5_tokenizer,
        "byt5": byt5_tokenizer,
        "bert": bert_tokenizer,
        "roberta": roberta_tokenizer,
    }


@pytest.fixture(scope="session")
def tiny(tokenizers):
    """Return a function that makes a tiny random encoder of a family."""
    from tercet import Encoder

    def make(family="t5", *, size="tiny", **settings):
        return Encoder.load(f"random:{family}-{size}", tokenizer=tokenizers[family], device="cpu", **settings)

    return make
