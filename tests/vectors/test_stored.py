"""Search over vectors that `embed` wrote: as they are, in a file or a folder, of every kind of numbers."""

import json

import numpy as np
import pytest

import tercet
from tercet import InputError, SettingError

TEXTS = [f"sentence {i} about thing {i * 7 % 31} of town {i % 5}" for i in range(60)]


@pytest.fixture
def encoder(tiny):
    return tiny("t5")


@pytest.fixture
def store(encoder, tmp_path):
    """Return a function that writes vectors of all texts, and returns where."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t, "id": i}) + "\n" for i, t in enumerate(TEXTS)))

    def go(name="out.parquet", **more):
        tercet.embed(tmp_path / "in.jsonl", model=encoder, out=tmp_path / name, keep="id", shard_texts=16, **more)
        return tmp_path / name

    return go


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
def test_stored_vectors_find_what_the_texts_find(encoder, store, dtype):
    query = "town 3 and thing 14"
    wanted = tercet.search(query, TEXTS, model=encoder, k=5)
    found = tercet.search(query, store(dtype=dtype), model=encoder, k=5)
    scores = {hit.row: hit.score for hit in tercet.search(query, TEXTS, model=encoder, k=60)}
    # candidates are more than there are texts here, so one bit finds the same
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in wanted], abs=0.01)
    for hit in found:
        assert hit.text == TEXTS[hit.row - 1] and hit.kept == {"id": hit.row - 1}
        assert hit.score == pytest.approx(scores[hit.row], abs=0.01)
    assert found[0].to_dict() == {"score": found[0].score, "row": found[0].row, "text": found[0].text, **found[0].kept}


def test_only_the_query_is_embedded(encoder, store, monkeypatch):
    out, seen = store(), []
    embed = type(encoder).embed
    monkeypatch.setattr(
        type(encoder), "embed", lambda self, texts, **more: seen.extend(texts) or embed(self, texts, **more)
    )
    tercet.search("town 3", out, model=encoder)
    assert seen == ["town 3"]


def test_candidates_of_one_bit_are_ranked_by_their_full_vectors(encoder, store, monkeypatch):
    import tercet.vectors.stored as module

    monkeypatch.setattr(module, "_CANDIDATES", 2)
    monkeypatch.setattr(module, "_LEAST_CANDIDATES", 12)
    query = "town 3 and thing 14"
    found = tercet.search(query, store(dtype="binary"), model=encoder, k=3)
    vectors = encoder.embed([query, *TEXTS], normalize=True)
    signs = (np.where(vectors > 0, 1, -1)[1:] == np.where(vectors > 0, 1, -1)[0]).sum(1)
    candidates = np.lexsort((np.arange(60), -signs))[:12]
    exact = vectors[1:] @ vectors[0]
    wanted = sorted(candidates, key=lambda row: -exact[row])[:3]
    assert [hit.row - 1 for hit in found] == [int(row) for row in wanted]
    assert [hit.score for hit in found] == pytest.approx([exact[row] for row in wanted], abs=1e-5)


def test_a_folder_of_files_is_one_table(encoder, tmp_path):
    (tmp_path / "folder").mkdir()
    for part in range(3):
        texts = TEXTS[part * 20 : part * 20 + 20]
        tercet.embed(texts, model=encoder, out=tmp_path / "folder" / f"{part}.parquet")
    wanted = tercet.search("thing 14", TEXTS, model=encoder)
    found = tercet.search("thing 14", tmp_path / "folder", model=encoder)
    assert [(hit.row, hit.text) for hit in found] == [(hit.row, hit.text) for hit in wanted]
    tercet.embed(TEXTS, model=encoder, out=tmp_path / "folder" / "9.parquet", dtype="int8")
    with pytest.raises(InputError, match=r"9\.parquet: has vectors of another model or other settings than 0\.parquet"):
        tercet.search("thing 14", tmp_path / "folder", model=encoder)


def test_another_model_or_width_is_refused(encoder, store, tiny):
    out = store(dims=8)
    assert len(tercet.search("town 3", out, model=encoder, dims=8)) == 5
    with pytest.raises(SettingError, match="has vectors of another model than"):
        tercet.search("town 3", out, model=tiny("t5", seed=5))
    with pytest.raises(SettingError, match="have 8 numbers"):
        tercet.search("town 3", out, model=encoder, dims=4)
