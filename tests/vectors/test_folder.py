"""A folder of shards: one table to every tool, the same bytes however it came about, and nothing lost or mixed up."""

import json

import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import tercet
from tercet import InputError, OutputError
from tercet.storage.hashing import sha256_of_file


@pytest.fixture
def world(tmp_path, sentences, monkeypatch):
    """Two inputs, the first with duplicates within shards and across them, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = [{"text": text} for text in [*sentences, *sentences[:3], *sentences]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": f"another {i}"}) + "\n" for i in range(7)))
    return [row["text"] for row in rows]


def digests(folder):
    files = [*folder.glob("*.parquet"), folder / ".tercet" / "manifest.jsonl", folder / ".tercet" / "plan.json"]
    return {file.name: sha256_of_file(file) for file in files}


def table(folder):
    read = pq.read_table(folder)
    return read["text"].to_pylist(), np.stack(read["embedding"].to_numpy())


def test_the_folder_is_one_table_in_the_order_of_the_rows(world, tiny, tmp_path):
    encoder = tiny()
    stats = tercet.embed("a.jsonl", out="vectors/", model=encoder, shard_texts=5)
    texts, vectors = table(tmp_path / "vectors")
    assert texts == world
    assert stats.num_texts == len(world)
    np.testing.assert_allclose(vectors, encoder.embed(world), atol=1e-6)
    assert pyarrow.dataset.dataset(tmp_path / "vectors").count_rows() == len(world)


def test_datasets_and_duckdb_read_it_as_one_table(world, tiny, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    datasets = pytest.importorskip("datasets")
    for shard_texts in (5, 100):  # many shards, and a single one beside the files in .tercet
        folder = tmp_path / f"vectors-{shard_texts}"
        tercet.embed("a.jsonl", out=folder, model=tiny(), shard_texts=shard_texts)
        loaded = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
        assert loaded["text"][:] == world
        asked = duckdb.sql(f"select text, len(embedding) from '{folder}/*.parquet'").fetchall()
        assert asked == [(text, tiny().dim) for text in world]


def test_equal_texts_of_a_shard_have_equal_vectors(world, tiny, tmp_path):
    tercet.embed("a.jsonl", out="vectors/", model=tiny(), shard_texts=100)
    texts, vectors = table(tmp_path / "vectors")
    assert np.array_equal(vectors[texts.index(world[1])], vectors[len(texts) - 1 - texts[::-1].index(world[1])])


def test_a_second_start_makes_only_what_is_missing_or_damaged(world, tiny, tmp_path, monkeypatch):
    encoder, folder = tiny(), tmp_path / "vectors"
    tercet.embed("a.jsonl", out=folder, model=encoder, shard_texts=5)
    expected = digests(folder)
    (folder / "000001.parquet").unlink()
    content = bytearray((folder / "000002.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "000002.parquet").write_bytes(content)
    made = []
    each = encoder.embed_each

    def counted(chunks, **options):
        return each((made.append(len(chunk)) or chunk for chunk in chunks), **options)

    monkeypatch.setattr(encoder, "embed_each", counted)
    tercet.embed("a.jsonl", out=folder, model=encoder, shard_texts=5)
    assert len(made) == 2
    assert digests(folder) == expected
    assert tercet.verify(folder).is_whole


def test_a_line_that_a_kill_has_cut_counts_as_none(world, tiny, tmp_path):
    folder = tmp_path / "vectors"
    tercet.embed("a.jsonl", out=folder, model=tiny(), shard_texts=5)
    expected = digests(folder)
    manifest = folder / ".tercet" / "manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    tercet.embed("a.jsonl", out=folder, model=tiny(), shard_texts=5)
    assert digests(folder) == expected


def test_other_inputs_or_settings_touch_nothing(world, tiny, tmp_path):
    folder = tmp_path / "vectors"
    tercet.embed("a.jsonl", out=folder, model=tiny(), shard_texts=5)
    expected = digests(folder)
    for change in ({"dims": 4}, {"shard_texts": 6}, {"texts": "b.jsonl"}):
        options = {"texts": "a.jsonl", "shard_texts": 5, **change}
        with pytest.raises(OutputError, match="holds vectors of other inputs or settings"):
            tercet.embed(options.pop("texts"), out=folder, model=tiny(), **options)
    assert digests(folder) == expected


def test_a_folder_with_other_files_is_refused(world, tiny, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear")
    with pytest.raises(OutputError, match=r"holds other files than vectors \(notes.txt\)"):
        tercet.embed("a.jsonl", out="mine", model=tiny())
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_the_manifest_names_each_shard_with_its_counts_and_hash(world, tiny, tmp_path):
    folder = tmp_path / "vectors"
    stats = tercet.embed("a.jsonl", out=folder, model=tiny(), shard_texts=5)
    lines = [json.loads(line) for line in (folder / ".tercet" / "manifest.jsonl").read_text().splitlines()]
    assert [line["first_row"] for line in lines] == [0, 5, 10, 15]
    assert sum(line["num_tokens"] for line in lines) == stats.num_tokens
    for line in lines:
        assert sha256_of_file(folder / line["file"]) == line["sha256"]
        assert len(pq.read_table(folder / line["file"])) == line["num_texts"]


def test_a_text_that_is_too_long_is_named_by_file_and_row(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("short\nshort\nshort\n" + "many words " * 90 + "\nshort\n")
    with pytest.raises(InputError, match=r"in\.txt: row 4 "):
        tercet.embed("in.txt", out="vectors/", model=tiny(), shard_texts=3, on_truncate="error")


def test_a_list_of_texts_goes_into_a_folder_too(world, tiny, tmp_path):
    tercet.embed(world, out=tmp_path / "vectors", model=tiny(), shard_texts=5)
    assert table(tmp_path / "vectors")[0] == world
