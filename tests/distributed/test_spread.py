"""Vectors from a cluster are those of this machine, byte by byte; what goes wrong is said, and costs one shard."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from works import Brittle

import tercet
from tercet import InputError, SettingError, TextError
from tercet.storage.hashing import sha256_of_file
from tercet.vectors.remembered import RememberedVectors
from tercet.vectors.spread_encoder import spread_encoder


@pytest.fixture
def world(tmp_path, sentences, monkeypatch):
    """Two inputs of unequal length, with duplicates, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = [*sentences, *sentences[:3], *sentences]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(rows))
    )
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"id": None, "text": f"another {i}"}) + "\n" for i in range(7))
    )
    return rows


def digests(folder):
    return {file.name: sha256_of_file(file) for file in [*folder.glob("*.parquet"), folder / ".tercet" / "plan.json"]}


def counts(folder):
    lines = [json.loads(line) for line in (folder / ".tercet" / "manifest.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "input"} for line in lines]


def test_the_bytes_are_those_of_this_process_and_a_damaged_shard_is_made_again(world, tiny, tmp_path, settings):
    pattern = str(tmp_path / "*.jsonl")
    how = {"model": tiny(), "shard_texts": 5, "keep": ["id"], "dtype": "float16"}
    tercet.embed(Path(pattern), out="here/", **how)
    stats = tercet.embed(Path(pattern), out="there/", **how, engine=settings)
    there = tmp_path / "there"
    assert digests(there) == digests(tmp_path / "here")
    assert counts(there) == counts(tmp_path / "here")
    assert tercet.verify(there).is_whole
    assert stats.num_texts == len(world) + 7
    assert (stats.shards["num"], stats.shards["num_retries"]) == (6, 0)
    assert pq.read_table("there")["id"].to_pylist() == [*range(len(world)), *[None] * 7]
    assert pq.read_table("there")["text"].to_pylist() == [*world, *(f"another {i}" for i in range(7))]
    (there / "000003.parquet").write_bytes(b"damaged")
    tercet.embed(Path(pattern), out="there/", **how, engine=settings)
    assert digests(there) == digests(tmp_path / "here")


def test_triplets_from_a_cluster_are_those_of_this_process(tmp_path, synthesizer_folder, settings):
    file = tmp_path / "in.txt"
    file.write_text("".join(f"A man number {i} is playing a guitar on the stage.\n" for i in range(20)))
    how = {"model": str(synthesizer_folder()), "strategy": "title", "settings": {"shard_sentences": 6, "finder": None}}
    tercet.synthesize(file, tmp_path / "here", **how)
    tercet.synthesize(file, tmp_path / "there", **how, engine=settings)
    for name in ("triplets.jsonl", *(f"candidates/{number:06d}.parquet" for number in range(4))):
        assert sha256_of_file(tmp_path / "there" / name) == sha256_of_file(tmp_path / "here" / name)
    assert tercet.verify(tmp_path / "there").is_whole


def test_lists_are_embedded_by_a_cluster_as_here(tmp_path, tiny, settings, monkeypatch):
    monkeypatch.setattr("tercet.encoder.encoder._CHUNK_TEXTS", 500)
    texts = [f"text number {i}" for i in range(1_800)]
    with spread_encoder(tiny(), settings) as spread:
        embedded = tiny().embed(texts)
        assert np.array_equal(spread.embed(texts), embedded)
        with pytest.raises(TextError, match="text 1700"):
            spread.embed([*texts[:1700], "many words " * 90], on_truncate="error")
        store = RememberedVectors(tmp_path / "vectors", spread, precision="exact")
        keys = store.add(lambda: texts, label="teacher")
        np.testing.assert_allclose(store(keys), embedded, atol=1e-3)
    pairs = "".join(f"{a}\t{b}\t{i % 6}\n" for i, (a, b) in enumerate(zip(texts[:30], texts[30:60], strict=True)))
    (tmp_path / "pairs.tsv").write_text(f"sentence1\tsentence2\tscore\n{pairs}")
    tasks = f"scored:{tmp_path / 'pairs.tsv'}"
    there = tercet.evaluate(tiny(), tasks=tasks, engine=settings, cache=False)
    assert there.tasks == tercet.evaluate(tiny(), tasks=tasks, cache=False).tasks
    with pytest.raises(SettingError, match="speed measures this machine"):
        tercet.evaluate(tiny(), tasks="speed", engine=settings)


def test_a_poison_text_is_named_by_file_and_row_and_the_rest_is_done(tmp_path, tokenizers, one_worker, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("".join(f"text {i}\n" if i != 13 else "poison\n" for i in range(24)))
    encoder = Brittle.load("random:t5-tiny", tokenizer=tokenizers["t5"], device="cpu")
    engine = one_worker.model_copy(update={"tries": 1})
    with pytest.raises(InputError, match=r"1 of 4 shards cannot be made, .*in\.txt: row 14 ends every worker"):
        tercet.embed("in.txt", out="vectors/", model=encoder, shard_texts=6, engine=engine)
    assert sorted(path.name for path in (tmp_path / "vectors").glob("*.parquet")) == [
        "000000.parquet",
        "000001.parquet",
        "000003.parquet",
    ]
    assert not (tmp_path / "vectors" / ".tercet" / "SHA256SUMS").exists()


def test_texts_that_are_too_long_are_named_and_the_rest_is_done(tmp_path, tiny, one_worker, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["many words " * 90 if i in (4, 9) else f"text {i}" for i in range(12)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"2 of 3 shards cannot be made") as raised:
        tercet.embed("in.txt", out="vectors/", model=tiny(), shard_texts=4, on_truncate="error", engine=one_worker)
    assert all(f"in.txt: row {row} " in str(raised.value) for row in (5, 10))
    assert [path.name for path in (tmp_path / "vectors").glob("*.parquet")] == ["000000.parquet"]


def test_a_broken_row_is_named_before_anything_is_written(tmp_path, tiny, one_worker, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    with pytest.raises(InputError, match=r"in\.jsonl:2: "):
        tercet.embed("in.jsonl", out="vectors/", model=tiny(), engine=one_worker)
    assert not (tmp_path / "vectors").exists()


def test_a_single_file_is_not_written_by_several(tmp_path):
    with pytest.raises(SettingError, match="Name a folder"):
        tercet.embed(["a"], out=tmp_path / "vectors.npy", engine="ray")
    with pytest.raises(SettingError, match="Name a folder"):
        tercet.embed(["a"], engine={"workers": 2})
    with pytest.raises(SettingError, match="engine 'spark': there is none of that name"):
        tercet.embed(["a"], out=tmp_path / "vectors", engine="spark")
    with pytest.raises(SettingError, match=r"engine\.workers 0"):
        tercet.embed(["a"], out=tmp_path / "vectors", engine={"workers": 0})


def test_the_command_stops_on_ctrl_c_goes_on_and_shows_no_token(tmp_path):
    token, out = "hf_VerySecretToken", tmp_path / "there"
    (tmp_path / "in.txt").write_text("".join(f"a text of some words, number {i}\n" for i in range(1500)))
    command = [sys.executable, "-m", "tercet", "embed", "in.txt", "--shard-texts", "50", "--out", "there/"]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r-") as logs:  # names of sockets have to be short
        environment = {**os.environ, "HF_TOKEN": token, "RAY_TMPDIR": logs, "PYTHONPATH": os.pathsep.join(sys.path)}

        def start():
            return subprocess.Popen(
                [*command, "--workers", "1"],
                env=environment,
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )

        with start() as stopped:
            while stopped.poll() is None and len([*out.glob("*.parquet")]) < 2:
                time.sleep(0.02)
            os.killpg(stopped.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
            said = stopped.communicate(timeout=60)[1]
        assert stopped.returncode == 130, said
        assert "Traceback" not in said
        num_done = len([*out.glob("*.parquet")])
        assert 2 <= num_done < 30
        with start() as again:
            said = again.communicate(timeout=200)[1]
        assert again.returncode == 0, said
        written = [file for file in Path(logs).rglob("*.*") if file.is_file()]
        assert any(file.name.startswith("raylet") for file in written)
        assert not [file for file in written if token.encode() in file.read_bytes()]
    assert "30 shards, 0 retries" in said
    assert token not in said
    tercet.embed(tmp_path / "in.txt", out=tmp_path / "here", shard_texts=50)
    assert digests(out) == digests(tmp_path / "here")
