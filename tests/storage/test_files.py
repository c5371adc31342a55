"""Files are whole or not there."""

import errno

import pytest

from tercet import InputError, ModelError, OutputError
from tercet.storage.files import atomic_folder, atomic_write, check_writable, make_folder, read_json, write_json
from tercet.storage.hashing import sha256_of_file, sha256_of_folder, sha256_of_json


def test_a_file_appears_only_when_its_block_ends_well(tmp_path):
    target = tmp_path / "a.txt"
    with atomic_write(target, "w") as stream:
        stream.write("whole")
        assert not target.exists()
    assert target.read_text() == "whole"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(target, "w") as stream:
        stream.write("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_is_an_output_error_that_names_the_file(tmp_path):
    with pytest.raises(OutputError, match=r"a\.txt: No space left"), atomic_write(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_replaced_whole(tmp_path):
    target = tmp_path / "m"
    for name in ("first", "second"):
        with atomic_folder(target) as folder:
            (folder / name).write_text(name)
    assert [path.name for path in target.iterdir()] == ["second"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_failed_folder_leaves_the_old_one(tmp_path):
    target = tmp_path / "m"
    with atomic_folder(target) as folder:
        (folder / "old").touch()
    with pytest.raises(ZeroDivisionError), atomic_folder(target) as folder:
        (folder / "new").touch()
        raise ZeroDivisionError
    assert [path.name for path in target.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_target_that_cannot_be_written_is_found_out_before_any_work(tmp_path):
    with pytest.raises(OutputError, match="missing"):
        check_writable(tmp_path / "missing" / "a.npy")
    with pytest.raises(OutputError, match="is a folder"):
        check_writable(tmp_path)
    check_writable(tmp_path / "a.npy")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_made_with_those_above_it_and_may_be_there(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"^cannot write .*/file/b: Not a directory\. Check the folder"):
        make_folder(tmp_path / "file" / "b")


def test_json_is_read_as_it_was_written(tmp_path):
    for value in ({"ä": [1, 2.5, None, "\u4e16"]}, [], "text"):
        write_json(tmp_path / "a.json", value)
        assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"a\.json: is not JSON \(Expecting value.*\)\. Write it again\.$"),
        (b"{'a': 1}", r"a\.json: is not JSON \(Expecting property name.*\)\. Write it again\.$"),
        (b'"\xff"', r"a\.json: is not JSON \(.*utf-8.*\)\. Write it again\.$"),
        (b"[" * 100_000, r"a\.json: is not JSON \(.*recursion.*\)\. Write it again\.$"),
        (None, r"a\.json: there is no such file\. Write it again\.$"),
    ],
)
def test_a_file_that_is_no_json_or_not_there_is_named_with_what_to_do(tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_json(tmp_path / "a.json", fix="Write it again.")
    with pytest.raises(ModelError, match=r"a\.json: .*\. Check the file\.$"):
        read_json(tmp_path / "a.json", raised=ModelError)


def test_a_folder_in_the_place_of_json_is_told_apart(tmp_path):
    with pytest.raises(InputError, match=r": cannot be read \(Is a directory\)\. Check the file\.$"):
        read_json(tmp_path)


def test_hashes_depend_on_contents_and_names_not_on_the_order_of_keys(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    before = sha256_of_folder(tmp_path)
    assert sha256_of_file(tmp_path / "a.json") == sha256_of_file(tmp_path / "a.json")
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert sha256_of_folder(tmp_path) != before
    assert sha256_of_json({"a": 1, "b": 2}) == sha256_of_json({"b": 2, "a": 1}) != sha256_of_json({"a": 1, "b": 3})
