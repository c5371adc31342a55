"""Neighbours by words against bm25s with everything in memory."""

import itertools
import random

import bm25s
import numpy as np
import pytest

from tercet.synthesis import nearest_words
from tercet.synthesis.nearest_words import NearestByWords


def sentences(num):
    words, draw = [f"word{i}" for i in range(200)], random.Random(1)
    found = [
        " ".join(draw.choices(words, [1 / (i + 3) for i in range(200)], k=draw.randint(1, 15))) for _ in range(num)
    ]
    return [*dict.fromkeys([*found, "", "?", "日本 word1 word2", "word1"])]


def tokens(texts):
    return bm25s.tokenize(texts, stopwords=None, show_progress=False, return_ids=False)


@pytest.mark.parametrize("block", [7, 10_000])
def test_scores_are_those_of_bm25s_however_many_sentences_are_read_at_once(monkeypatch, block):
    monkeypatch.setattr(nearest_words, "_BLOCK", block)
    texts = sentences(300)
    whole = bm25s.BM25()
    whole.index(tokens(texts), show_progress=False)
    ours = NearestByWords(iter(texts))
    assert ours._index.vocab_dict.keys() == whole.vocab_dict.keys()
    for words in tokens(texts[:60]):
        np.testing.assert_allclose(ours._index.get_scores(words), whole.get_scores(words), rtol=1e-5)
    near = ours(texts[:60], first=0, num=3)
    for number, (own, words) in enumerate(zip(near, tokens(texts[:60]), strict=True)):
        scores = whole.get_scores(words)
        scores[number] = 0
        best = sorted(scores, reverse=True)[:3]
        assert [scores[texts.index(text)] for text in own] == pytest.approx(best[: len(own)], rel=1e-5)
        assert len(own) == sum(score > 0 for score in best)


def test_sentences_and_index_are_files_and_go_with_the_object(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    alive = 0

    def read(num):
        nonlocal alive
        for i in itertools.count():
            if i == num:
                return
            alive += 1
            yield f"sentence number {i % 50} of many"

    found = NearestByWords(read(30_000))
    assert alive == 30_000
    assert sum(file.stat().st_size for file in tmp_path.rglob("*")) > 30_000 * 20
    assert all(isinstance(found._index.scores[name], np.memmap) for name in ("data", "indices"))
    del found
    assert not [*tmp_path.iterdir()]


def test_no_sentence_shares_a_word_with_nothing():
    assert NearestByWords(["alpha beta", "gamma delta"])(["alpha beta"], first=0, num=2) == [[]]
