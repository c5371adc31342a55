"""Shards: a renamed file is the record; another plan starts anew."""

import pytest

from tercet import OutputError
from tercet.storage.shards import Shards, in_shards


def test_rows_come_in_lists_of_a_fixed_size():
    assert list(in_shards(iter("abcdefg"), 3)) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert list(in_shards(iter("abc"), 3)) == [["a", "b", "c"]]
    assert list(in_shards(iter(""), 3)) == []


def test_a_shard_is_done_when_its_file_is_there(tmp_path):
    shards = Shards(tmp_path / "parts", plan={"n": 1}, ending=".npz")
    assert not shards.is_done(0)
    shards.path(0).touch()
    assert Shards(tmp_path / "parts", plan={"n": 1}, ending=".npz").is_done(0)


def test_shards_of_another_plan_are_thrown_away(tmp_path, caplog):
    Shards(tmp_path / "parts", plan={"n": 1}, ending=".npz").path(0).touch()
    assert not Shards(tmp_path / "parts", plan={"n": 2}, ending=".npz").is_done(0)
    assert "thrown away" in caplog.text


def test_removing_leaves_nothing(tmp_path):
    Shards(tmp_path / "parts", plan={}, ending=".npz").remove()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("replace", [True, False])
def test_a_kill_while_the_plan_is_written_is_no_other_work(tmp_path, caplog, replace):
    started = Shards(tmp_path / "parts", plan={"n": 1}, ending=".npz")
    [marker] = started.folder.iterdir()
    marker.rename(marker.with_name(f".{marker.name}.abcd_123.tercet"))
    Shards(tmp_path / "parts", plan={"n": 1}, ending=".npz", replace=replace)
    assert [*started.folder.iterdir()] == [marker]
    assert not caplog.text


@pytest.mark.parametrize("name", ["notes.txt", ".some.settings"])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path, name):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / name).write_text("of value")
    with pytest.raises(OutputError, match=r"parts: is in the way, and not Tercet's"):
        Shards(tmp_path / "parts", plan={}, ending=".npz")
    assert (tmp_path / "parts" / name).read_text() == "of value"
