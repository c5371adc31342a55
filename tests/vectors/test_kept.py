"""Vectors that are kept are read only as they were written: a damaged file is made again, and said to be."""

import numpy as np
import pytest

import tercet
from tercet.encoder.encoder import Encoder
from tercet.vectors.kept import read_kept
from tercet.vectors.remembered import RememberedVectors

TEXTS = [f"Sentence number {i} about a guitar." for i in range(10)]


class Interrupted(Exception):
    pass


@pytest.fixture
def encoder(tiny):
    return tiny("t5")


@pytest.fixture
def half_done(encoder, tmp_path, monkeypatch):
    """Return the folder of shards of an `embed` that was stopped after three of five shards."""
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    each = Encoder.embed_each

    def stopping(self, chunks, **options):
        for number, part in enumerate(each(self, chunks, **options)):
            if number == 3:
                raise Interrupted
            yield part

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "embed_each", stopping)
        with pytest.raises(Interrupted):
            tercet.embed(tmp_path / "in.txt", model=encoder, out=tmp_path / "out.npy", shard_texts=2)
    return tmp_path / "out.npy.parts"


def flipped(file):
    content = bytearray(file.read_bytes())
    content[-3] ^= 0x40
    file.write_bytes(content)


def flipped_without_a_hash(file):
    file.with_name(file.name + ".sha256").unlink()
    rows = np.load(file)
    rows[0, 0] = np.nan
    np.save(file, rows)


def of_another_width(file):
    file.with_name(file.name + ".sha256").unlink()
    np.save(file, np.load(file)[:, :-1].copy())


def of_doubles(file):
    file.with_name(file.name + ".sha256").unlink()
    np.save(file, np.load(file).astype(np.float64))


def truncated(file):
    file.write_bytes(file.read_bytes()[:-10])


def emptied(file):
    file.write_bytes(b"")


def emptied_without_a_hash(file):
    file.with_name(file.name + ".sha256").unlink()
    file.write_bytes(b"")


def with_a_damaged_hash(file):
    flipped(file.with_name(file.name + ".sha256"))


DAMAGES = [
    flipped,
    flipped_without_a_hash,
    of_another_width,
    of_doubles,
    truncated,
    emptied,
    emptied_without_a_hash,
    with_a_damaged_hash,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_shard_is_made_again(encoder, tmp_path, half_done, caplog, damage):
    damage(half_done / "000001.npy")
    tercet.embed(tmp_path / "in.txt", model=encoder, out=tmp_path / "out.npy", shard_texts=2)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), encoder.embed(TEXTS), atol=1e-5)
    assert caplog.text.count("000001.npy: it ") == 1
    assert caplog.text.count("made again") == 1


def test_shards_without_a_hash_as_earlier_versions_wrote_them_are_used(encoder, tmp_path, half_done, caplog):
    for file in half_done.glob("*.sha256"):
        file.unlink()
    tercet.embed(tmp_path / "in.txt", model=encoder, out=tmp_path / "out.npy", shard_texts=2)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), encoder.embed(TEXTS), atol=1e-5)
    assert not caplog.text


@pytest.mark.parametrize("damage", [flipped, truncated, emptied, flipped_without_a_hash, of_another_width])
def test_damaged_vectors_of_a_search_are_made_again(encoder, tmp_path, caplog, damage):
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    first = tercet.search("guitar 3", tmp_path / "in.txt", model=encoder)
    [file] = (tmp_path / ".tercet-cache").glob("*.npy")
    damage(file)
    assert tercet.search("guitar 3", tmp_path / "in.txt", model=encoder) == first
    assert caplog.text.count("made again") == 1


@pytest.mark.parametrize("damage", [flipped, truncated, emptied, with_a_damaged_hash])
def test_damaged_vectors_of_a_teacher_are_made_again(encoder, tmp_path, caplog, damage):
    store = RememberedVectors(tmp_path, encoder, precision="exact")
    first = store(store.add(lambda: iter(TEXTS), label="test"))
    [file] = tmp_path.rglob("*.npy")
    damage(file)
    again = RememberedVectors(tmp_path, encoder, precision="exact")
    np.testing.assert_array_equal(again(again.add(lambda: iter(TEXTS), label="test")), first)
    assert caplog.text.count("made again") == 1


@pytest.mark.parametrize("header", [b"{'a': ", b"{'descr': '<f4', 'shape': (" + b"9" * 3000 + b",)}", b"x" * 50, b""])
def test_a_header_that_cannot_be_read_is_damage_and_no_other_error(tmp_path, header):
    file = tmp_path / "a.npy"
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ValueError, match="it cannot be read"):
        read_kept(file, dtype=np.dtype(np.float32), shape=(None, None))
