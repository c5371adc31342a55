"""Files of vectors: numbers of every format, columns that are kept, several inputs, lines on standard output."""

import io
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers.util.quantization import quantize_embeddings

import tercet
from tercet import InputError, SettingError
from tercet.vectors.numbers import packed, unpacked

TEXTS = ["A man plays a guitar.", "Rain.", "", "Rain.", "Two dogs run through the snow."]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def encoder(tiny):
    return tiny("t5")


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "in.csv"
    file.write_text("id,body,url\n" + "".join(f'{i},"{text}",http://x/{i}\n' for i, text in enumerate(TEXTS)))
    return file


def test_8_bits_with_their_scale_are_half_a_step_away_at_most(rng):
    vectors = rng.normal(size=(50, 33)).astype(np.float32) * rng.uniform(0.01, 100, size=(50, 1)).astype(np.float32)
    vectors[7] = 0
    numbers, scale = packed(vectors, "int8")
    assert numbers.dtype == np.int8 and np.abs(numbers).max(1)[np.arange(50) != 7].min() == 127
    assert (np.abs(unpacked(numbers, scale, dims=33) - vectors) <= scale[:, None] / 2 * 1.001).all()
    assert (unpacked(numbers, scale, dims=33)[7] == 0).all()


def test_a_vector_is_packed_the_same_way_whatever_is_beside_it(rng):
    vectors = rng.normal(size=(9, 16)).astype(np.float32)
    for dtype in ("float16", "int8", "binary"):
        assert (packed(vectors, dtype)[0][4:5] == packed(vectors[4:5], dtype)[0]).all()


def test_one_bit_is_what_sentence_transformers_calls_ubinary(rng):
    vectors = rng.normal(size=(9, 40)).astype(np.float32)
    numbers, scale = packed(vectors, "binary")
    assert scale is None
    assert (numbers == quantize_embeddings(vectors, precision="ubinary")).all()
    assert (unpacked(numbers, None, dims=40) == np.where(vectors > 0, 1, -1)).all()


def test_a_number_that_16_bits_cannot_hold_is_refused():
    with pytest.raises(SettingError, match="too large"):
        packed(np.full((1, 2), 1e6, np.float32), "float16")


@pytest.mark.parametrize("shard_texts", [8192, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "binary"])
def test_every_format_holds_the_same_vectors(encoder, table, tmp_path, dtype, shard_texts):
    wanted = encoder.embed(TEXTS)
    found = {}
    for ending in ("npy", "parquet", "jsonl"):
        out = tmp_path / f"out.{ending}"
        tercet.embed(table, column="body", model=encoder, out=out, dtype=dtype, shard_texts=shard_texts)
        if ending == "npy":
            rows = np.load(out)
            has_scale = rows.dtype.names is not None
            found[ending] = (rows["embedding"], rows["scale"]) if has_scale else (rows, None)
        elif ending == "parquet":
            rows = pq.read_table(out)
            scale = np.array(rows["scale"]) if "scale" in rows.column_names else None
            found[ending] = np.stack(rows["embedding"].to_pylist()), scale
        else:
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            scale = np.array([row["scale"] for row in rows]) if "scale" in rows[0] else None
            found[ending] = np.array([row["embedding"] for row in rows]), scale
    for numbers, scale in found.values():
        kind = np.uint8 if dtype == "binary" else np.float32
        close = unpacked(numbers.astype(kind), scale, dims=encoder.dim)
        if dtype == "binary":
            wanted = np.where(wanted > 0, 1, -1)
        # vectors of other batches differ in their last bits
        assert np.abs(close - wanted).max() <= {"float32": 1e-5, "binary": 0}.get(dtype, 0.01)
    numbers, scale = packed(np.zeros((1, encoder.dim), np.float32), dtype)
    assert np.load(tmp_path / "out.npy").nbytes == len(TEXTS) * (numbers.nbytes + (0 if scale is None else 4))


def test_kept_columns_go_along_and_the_file_says_what_made_its_vectors(encoder, table, tmp_path):
    out = tmp_path / "out.parquet"
    tercet.embed(table, column="body", model=encoder, out=out, keep=["url", "id"], shard_texts=2)
    rows = pq.read_table(out)
    assert rows.column_names == ["url", "id", "text", "embedding"]
    assert rows["id"].to_pylist() == ["0", "1", "2", "3", "4"]
    assert rows["text"].to_pylist() == TEXTS
    about = json.loads(rows.schema.metadata[b"tercet"])
    assert about["fingerprint"] == encoder.fingerprint()
    assert (about["dtype"], about["dims"], about["precision"]) == ("float32", encoder.dim, "exact")


def test_all_columns_are_kept_by_one_word_in_every_format(encoder, table, tmp_path):
    out = tmp_path / "out.jsonl"
    tercet.embed(table, column="body", model=encoder, out=out, keep="all")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [*rows[1]] == ["id", "url", "text", "embedding"]
    assert [row["url"] for row in rows] == [f"http://x/{i}" for i in range(5)]


def test_types_of_json_are_found_over_all_rows(encoder, tmp_path):
    rows = [
        {"text": "a", "whole": 1, "part": 1, "mixed": 1, "deep": {"x": [1]}, "flag": True, "huge": 2**70},
        {"text": "b", "whole": 2, "part": 0.5, "mixed": "y", "deep": None, "never": None},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tercet.embed(tmp_path / "in.jsonl", model=encoder, out=tmp_path / "out.parquet", keep="all")
    found = pq.read_table(tmp_path / "out.parquet").drop(["embedding"])
    types = {name: found.schema.field(name).type for name in found.column_names}
    assert (types["whole"], types["part"], types["flag"]) == (pa.int64(), pa.float64(), pa.bool_())
    kept = ("mixed", "deep", "huge", "never")
    assert found.select(kept).to_pylist() == [
        {"mixed": "1", "deep": '{"x": [1]}', "huge": str(2**70), "never": None},
        {"mixed": "y", "deep": None, "huge": None, "never": None},
    ]


def test_types_of_parquet_stay(encoder, tmp_path):
    at = pa.array([0, 10**9], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at, "text": ["a", "b"], "tags": [["x"], []]}), tmp_path / "in.parquet")
    for name in ("out.parquet", "out.jsonl"):
        tercet.embed(tmp_path / "in.parquet", model=encoder, out=tmp_path / name, keep="all")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found["at"].type == at.type and found["at"].combine_chunks() == at
    assert found["tags"].to_pylist() == [["x"], []]
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["at"] == "1970-01-01 00:00:00+00:00"


@pytest.mark.parametrize(
    ("keep", "out", "message"),
    [
        (["nope"], "out.jsonl", r"in\.csv: has no column 'nope' to keep\. It has: id, body, url"),
        (["id"], "out.npy", "no room for columns"),
        (["body"], "out.jsonl", "written as 'text' in any case"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused(encoder, table, tmp_path, keep, out, message):
    with pytest.raises(tercet.TercetError, match=message):
        tercet.embed(table, column="body", model=encoder, out=tmp_path / out, keep=keep)
    assert not (tmp_path / out).exists()


def test_a_column_with_a_name_that_is_taken_is_refused(encoder, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a", "embedding": 1}\n')
    with pytest.raises(InputError, match="'embedding' cannot be kept"):
        tercet.embed(tmp_path / "in.jsonl", model=encoder, out=tmp_path / "out.jsonl", keep="all")


def test_several_files_and_patterns_are_as_one(encoder, tmp_path):
    for name, texts in {"b.txt": ["three"], "a1.txt": ["one"], "a2.txt": ["two", "one"]}.items():
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))
    inputs = [tmp_path / "b.txt", tmp_path / "a*.txt"]
    stats = tercet.embed(inputs, model=encoder, out=tmp_path / "out.jsonl", shard_texts=2)
    assert stats.num_texts == 4
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == ["three", "one", "two", "one"]
    assert np.allclose([row["embedding"] for row in rows], tercet.embed(inputs, model=encoder), atol=1e-6)
    with pytest.raises(InputError, match=r"c\*\.txt: matches no file"):
        tercet.embed([tmp_path / "c*.txt"], model=encoder)
    with pytest.raises(InputError, match=r"a2\.txt: row 1 "):
        (tmp_path / "a2.txt").write_text("word " * 2000 + "\n")
        tercet.embed(inputs, model=encoder, on_truncate="error")


def test_an_input_among_several_is_not_overwritten(encoder, tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text('{"text": "x"}\n')
    with pytest.raises(SettingError, match=r"b\.jsonl: is the input"):
        tercet.embed([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], model=encoder, out=tmp_path / "b.jsonl")


def test_lines_go_to_standard_output_as_they_are_computed(encoder, table, tmp_path, monkeypatch):
    import tercet.vectors.embed as module

    monkeypatch.setattr(module, "_LINE_TEXTS", 2)
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown))
    stats = tercet.embed(table, column="body", model=encoder, out="-", keep="id")
    assert (stats.num_texts, stats.max_tokens) == (5, encoder.tokens.max_tokens)
    rows = [json.loads(line) for line in shown.getvalue().splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == [(str(i), text) for i, text in enumerate(TEXTS)]
    assert np.allclose([row["embedding"] for row in rows], encoder.embed(TEXTS), atol=1e-5)


def test_what_is_only_for_files_is_refused_without_one(encoder):
    for more in ({"dtype": "int8"}, {"keep": "id"}):
        with pytest.raises(SettingError, match="are for files"):
            tercet.embed(["a"], model=encoder, **more)
