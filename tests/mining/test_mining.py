"""Mining against sentence-transformers, and against loops of numpy where it has nothing of the kind."""

import json
import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers.util import community_detection, mine_hard_negatives, pairwise_cos_sim
from sentence_transformers.util.retrieval import paraphrase_mining_embeddings

import tercet
from tercet.mining import vectors as vectors_module
from tercet.mining.cluster import names_of
from tercet.mining.communities import communities
from tercet.mining.duplicates import first_ones
from tercet.mining.negatives import NegativeRules, negatives_of
from tercet.mining.paraphrases import paraphrases
from tercet.mining.translations import translations
from tercet.vectors import nearest


def clouds(num, *, width=16, num_clouds=9, spread=0.5, seed=0):
    """Vectors of length 1 around some centers."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((num_clouds, width))
    found = centers[rng.integers(num_clouds, size=num)] + spread * rng.standard_normal((num, width))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(nearest, "_QUERIES", 17)
    monkeypatch.setattr(nearest, "_CORPUS", 64)


@pytest.mark.parametrize("itself", [True, False])
def test_the_nearest_are_those_of_a_full_sort(small_blocks, itself):
    vectors = clouds(200)
    scores = vectors @ vectors.T
    if not itself:
        np.fill_diagonal(scores, -np.inf)
    for k in (1, 5, 150, 500):
        found = [*nearest.nearest(vectors, vectors, k, itself=itself)]
        wanted = np.argsort(-scores, axis=1)[:, : min(k, 200 - (not itself))]
        np.testing.assert_array_equal(np.concatenate([places for _, _, places in found]), wanted)
        assert [start for start, _, _ in found] == [*range(0, 200, 17)]


@pytest.mark.parametrize(("k", "max_pairs"), [(100, 10_000), (3, 10_000), (20, 50), (300, 1)])
def test_paraphrases_are_those_of_sentence_transformers(small_blocks, k, max_pairs):
    vectors = clouds(150)
    theirs = paraphrase_mining_embeddings(torch.from_numpy(vectors), top_k=k, max_pairs=max_pairs)
    scores, first, second = paraphrases(vectors, k=k, max_pairs=max_pairs)
    assert {(i, j) for _, i, j in theirs} == {*zip(first.tolist(), second.tolist(), strict=True)}
    np.testing.assert_allclose(scores, [score for score, _, _ in theirs], atol=1e-6)


@pytest.mark.parametrize(("threshold", "min_size"), [(0.75, 5), (0.6, 2), (0.3, 10), (0.99, 2), (-0.5, 3)])
def test_communities_are_those_of_sentence_transformers(threshold, min_size):
    vectors = clouds(300)
    theirs = community_detection(vectors, threshold=threshold, min_community_size=min_size)
    ours = communities(vectors, threshold=threshold, min_size=min_size)
    assert ours == [[int(i) for i in group] for group in theirs]


class Known:
    """A SentenceTransformer whose vectors are known."""

    device = torch.device("cpu")
    model_card_data = SimpleNamespace(base_model=None)

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_query(self, texts, **_options):
        return np.stack([self.vectors[text] for text in texts])

    encode_document = encode_query

    def similarity(self, a, b):
        return torch.as_tensor(a) @ torch.as_tensor(b).T

    def similarity_pairwise(self, a, b):
        return pairwise_cos_sim(torch.as_tensor(a), torch.as_tensor(b))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"num": 5, "min_rank": 3}, {"num_negatives": 5, "range_min": 3}),
        ({"margin": 0.1}, {"absolute_margin": 0.1}),
        ({"relative_margin": 0.05, "min_rank": 2}, {"relative_margin": 0.05, "range_min": 2}),
        ({"max_score": 0.5, "min_score": 0.1}, {"max_score": 0.5, "min_score": 0.1}),
        ({"max_rank": 8, "min_rank": 4, "num": 4}, {"range_max": 8, "range_min": 4, "num_negatives": 4}),
    ],
    ids=str,
)
@pytest.mark.parametrize("more", [0, 40])
def test_hard_negatives_are_those_of_sentence_transformers(small_blocks, ours, theirs, more):
    vectors = clouds(140 + more)
    draw = random.Random(1)
    texts = [f"text {i}" for i in range(len(vectors))]
    pairs = [(texts[i], texts[60 + draw.randrange(80)]) for i in range(60) for _ in range(1 + (i % 10 == 0))]
    extra = texts[140:]
    dataset = Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]})
    model = Known(dict(zip(texts, vectors, strict=True)))
    found = mine_hard_negatives(dataset, model, corpus=extra or None, verbose=False, **theirs)
    wanted = sorted(zip(found["anchor"], found["positive"], found["negative"], strict=True))

    anchors = list(dict.fromkeys(a for a, _ in pairs))
    corpus = list(dict.fromkeys([*extra, *(b for _, b in pairs)]))
    positives = [list(dict.fromkeys(corpus.index(b) for a, b in pairs if a == anchor)) for anchor in anchors]
    most = max(sum(a == anchor for a, _ in pairs) for anchor in anchors)
    stacked = [np.stack([model.vectors[text] for text in each]) for each in (anchors, corpus)]
    negatives = negatives_of(*stacked, positives, NegativeRules(**ours), max_positives=most)
    got = [
        (anchor, corpus[positive], corpus[negative])
        for anchor, own, (places, _) in zip(anchors, positives, negatives, strict=True)
        for positive in own
        for negative in places
    ]
    assert sorted(got) == wanted


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.999])
def test_of_near_texts_the_first_is_kept(monkeypatch, threshold):
    monkeypatch.setattr("tercet.mining.duplicates._BLOCK", 23)
    monkeypatch.setattr("tercet.mining.duplicates._KEPT", 5)
    vectors = np.concatenate([clouds(150), clouds(150)[:20]])
    kept, wanted = [], []
    for i, vector in enumerate(vectors):
        cosines = vectors[kept] @ vector if kept else np.empty(0)
        repeats = len(kept) > 0 and cosines.max() >= threshold
        wanted.append(kept[int(cosines.argmax())] if repeats else i)
        kept += [] if repeats else [i]
    leaders, scores = first_ones(vectors, threshold=threshold)
    assert leaders.tolist() == wanted
    np.testing.assert_allclose(scores, (vectors * vectors[leaders]).sum(1), atol=1e-5)


def test_translations_are_those_of_the_ratio_margin(small_blocks):
    source = clouds(90, seed=2)
    noise = np.random.default_rng(3).standard_normal((90, 16)) * 0.1
    target = np.concatenate([source + noise, clouds(30, seed=4)]).astype(np.float32)[::-1].copy()
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    cosines = source @ target.T
    near = [
        np.sort(cosines, axis=axis)[tuple(slice(-4, None) if a == axis else slice(None) for a in (0, 1))]
        for axis in (1, 0)
    ]
    margins = cosines / ((near[0].mean(1)[:, None] + near[1].mean(0)[None]) / 2)
    candidates = np.full_like(margins, -np.inf)
    for i, row in enumerate(cosines):  # the best of the four nearest, either way
        places = np.argsort(-row)[:4]
        best = places[margins[i, places].argmax()]
        candidates[i, best] = margins[i, best]
    for j, column in enumerate(cosines.T):
        places = np.argsort(-column)[:4]
        best = places[margins[places, j].argmax()]
        candidates[best, j] = margins[best, j]
    wanted = []
    while candidates.max() >= 1.02:
        i, j = np.unravel_index(candidates.argmax(), candidates.shape)
        wanted.append((int(i), int(j)))
        candidates[i], candidates[:, j] = -np.inf, -np.inf
    scores, first, second = translations(source, target, min_score=1.02)
    assert [*zip(first.tolist(), second.tolist(), strict=True)] == wanted
    assert (np.diff(scores) <= 0).all()
    right = sum(j == 119 - i for i, j in wanted)
    assert right >= 80


TEXTS = [f"{who} {what}." for who in ("A man", "Two dogs", "Stocks") for what in ("run", "play", "fell")]
TEXTS += ["A man run."]


def test_dedup_writes_groups_or_texts(tiny, tmp_path):
    encoder = tiny("t5")
    found = tercet.dedup(TEXTS, model=encoder, threshold=0.9999, out=tmp_path / "groups.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "groups.jsonl").read_text().splitlines()]
    assert lines == [group.to_dict() for group in found.groups]
    assert lines[0] == {"row": 1, "text": "A man run.", "repeats": [{"row": 10, "text": "A man run.", "score": 1.0}]}
    tercet.dedup(TEXTS, model=encoder, threshold=0.9999, out=tmp_path / "kept.txt")
    assert (tmp_path / "kept.txt").read_text().splitlines() == found.texts == TEXTS[:-1]


def test_many_texts_are_kept_on_disk_and_embedded_once(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vectors_module, "SHARD_TEXTS", 4)
    encoder = tiny("t5")
    first = tercet.dedup(TEXTS, model=encoder, threshold=0.9)
    assert len([*(tmp_path / "tercet" / "mining").glob("*.npy")]) == 1
    monkeypatch.setattr(vectors_module, "embed", None)
    assert tercet.dedup(TEXTS, model=encoder, threshold=0.9) == first


def test_clusters_have_names_and_a_map(tiny, tmp_path):
    texts = [*(f"the guitar song {i}" for i in "abcdef"), *(f"<b>the stock market</b> {i}" for i in "abcdef")]
    encoder = tiny("t5")
    vectors = encoder.embed(texts, normalize=True)
    found = tercet.cluster(
        texts, model=encoder, threshold=0.9, min_size=3, out=tmp_path / "c.jsonl", map=tmp_path / "map.html"
    )
    wanted = community_detection(vectors, threshold=0.9, min_community_size=3)
    assert [[row - 1 for row in each.rows] for each in found.clusters] == wanted
    assert [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()] == found.to_dict()["clusters"]
    page = (tmp_path / "map.html").read_text()
    assert page.count("<circle") == len(texts)
    assert "&lt;b&gt;the stock market" in page
    assert "<b>the stock" not in page


def test_a_cluster_is_named_by_the_words_that_others_do_not_have():
    groups = [["the red guitar", "a guitar song", "the guitar"], ["the stock fell", "the stock rose"]]
    names = names_of(groups, [*groups[0], *groups[1], "the rest", "the other"])
    assert names[0].startswith("guitar")
    assert names[1].startswith("stock")
    assert "the" not in ", ".join(names).split(", ")


def test_mined_rows_can_be_trained_on(tiny, tmp_path):
    from tercet.data.feeding.sources import open_rows

    encoder = tiny("t5")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("anchor\tpositive\n" + "".join(f"{a}\t{b}\n" for a, b in pairwise(TEXTS[:9])))
    found = tercet.mine(pairs, find="negatives", model=encoder, out=tmp_path / "negatives.jsonl", num_negatives=2)
    rows = [*open_rows(str(tmp_path / "negatives.jsonl"), kind="triplets")]
    assert [row.negatives for row in rows] == [tuple(row["negatives"]) for row in found.rows]
    assert all(len(row.negatives) == 2 and row.positive not in row.negatives for row in rows)
    found = tercet.mine(TEXTS, model=encoder, out=tmp_path / "paraphrases.jsonl", max_rows=3)
    assert found.rows[0] == {"anchor": "A man run.", "positive": "A man run.", "cosine": 1.0}
    assert len([*open_rows(str(tmp_path / "paraphrases.jsonl"), kind="triplets")]) == 3
    found = tercet.mine(TEXTS[:5], TEXTS[3:], find="translations", model=encoder, out=tmp_path / "pairs.jsonl")
    assert {row["source"] for row in found.rows} <= set(TEXTS[:5])
    assert len([*open_rows(str(tmp_path / "pairs.jsonl"), kind="parallel")]) == len(found.rows)


def test_what_does_not_fit_together_is_refused(tmp_path):
    for options, message in [
        ({"find": "translations"}, "needs two files"),
        ({"find": "jewels"}, "there is none of that name"),
        ({"find": "paraphrases", "other": ["b"]}, "looks at one file"),
        ({"find": "negatives"}, "needs pairs"),
        ({"num_negatives": 0}, "are counts"),
    ]:
        with pytest.raises(tercet.TercetError, match=message):
            tercet.mine(["a"], options.pop("other", None), **options)
    with pytest.raises(tercet.SettingError, match="is no cosine"):
        tercet.dedup(["a"], threshold=2)
    with pytest.raises(tercet.SettingError, match="two texts or more"):
        tercet.cluster(["a"], min_size=1)
