"""Files are whole or not there."""

import contextlib
import errno
import json
import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from tercet import InputError, ModelError, OutputError
from tercet.storage import files
from tercet.storage.files import (
    append_to,
    atomic_folder,
    atomic_write,
    check_writable,
    make_folder,
    read_json,
    recover,
    remove_temporaries,
    write_json,
)
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


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 900 + b"]" * 900, "nested more than 100 deep"),
        (b"1" * 5000, "limit"),
        (b"null", "it holds null, not an object"),
        (b"[]", "it holds a list, not an object"),
        (b'"a"', "it holds a text, not an object"),
        (b"3", "it holds a number, not an object"),
        (b"true", "it holds true or false, not an object"),
    ],
)
def test_json_of_another_kind_or_without_end_is_refused(tmp_path, content, problem):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.json: is not JSON \(.*{problem}.*\)\. Check the file\.$"):
        read_json(tmp_path / "a.json", kind=dict)


def test_json_that_is_too_large_a_pipe_or_a_device_is_refused_at_once(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps("x" * 100))
    with pytest.raises(InputError, match="more than 50 bytes"):
        read_json(tmp_path / "a.json", max_bytes=50)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "zero.json"):
        with pytest.raises(InputError, match="it is no file, but a device or a pipe"):
            read_json(tmp_path / name)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_survives_a_kill_at_every_step_of_its_replacement(tmp_path, monkeypatch, exchanges):
    if not exchanges:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)

    class Killed(BaseException):
        pass

    for last in range(1, 9):
        target = tmp_path / str(last) / "m"
        with atomic_folder(target) as folder:
            (folder / "old").touch()
        calls = count(1)

        def killing(real, calls=calls, last=last):
            def call(*args, **options):
                if next(calls) >= last:
                    raise Killed
                return real(*args, **options)

            return call

        with monkeypatch.context() as patch, contextlib.suppress(Killed), atomic_folder(target) as folder:
            (folder / "new").touch()
            patch.setattr(Path, "replace", killing(Path.replace))
            patch.setattr(shutil, "rmtree", killing(shutil.rmtree))
            patch.setattr(files, "_sync_folder", killing(files._sync_folder))
        recover(target)
        assert [path.name for path in target.iterdir()] in (["old"], ["new"])
        with atomic_folder(target) as folder:
            (folder / "newest").touch()
        remove_temporaries(target.parent)
        assert [path.name for path in target.parent.iterdir()] == ["m"]
        assert [path.name for path in target.iterdir()] == ["newest"]


def test_a_folder_that_a_kill_left_without_its_name_is_put_back_and_that_is_said(tmp_path, caplog):
    (tmp_path / ".m.abcd1234.replaced.tercet").mkdir()
    (tmp_path / ".m.abcd1234.replaced.tercet" / "old").touch()
    remove_temporaries(tmp_path)
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["old"]
    assert "what was there before is back" in caplog.text


def test_files_of_other_people_are_no_temporaries(tmp_path):
    names = [".app.settings", ".notes.12345678", ".a.tercet", "a.abcd1234.tercet", ".bashrc"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".a.npy.abcd1234.tercet").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (tmp_path / ".b.abcd1234.tercet").symlink_to(tmp_path / "elsewhere")
    remove_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names, "elsewhere"}
    assert (tmp_path / "elsewhere" / "file").exists()


def test_what_is_replaced_hands_its_permissions_on(tmp_path):
    (tmp_path / "a").touch(0o600)
    with atomic_write(tmp_path / "a") as stream:
        stream.write(b"new")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    (tmp_path / "m").mkdir(0o700)
    with atomic_folder(tmp_path / "m") as folder:
        (folder / "new").touch()
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700


def test_links_are_not_followed_when_something_is_written(tmp_path):
    (tmp_path / "victim").write_text("of value")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "victim").write_text("of value")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "m").symlink_to(tmp_path / "folder")
    with pytest.raises(OutputError, match="link"), append_to(tmp_path / "link") as stream:
        stream.write("line\n")
    with atomic_write(tmp_path / "link") as stream:
        stream.write(b"new")
    with atomic_folder(tmp_path / "m") as folder:
        (folder / "new").touch()
    assert not (tmp_path / "link").is_symlink() and not (tmp_path / "m").is_symlink()
    assert (tmp_path / "victim").read_text() == (tmp_path / "folder" / "victim").read_text() == "of value"
