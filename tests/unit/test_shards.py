"""Shards: a renamed file is the record; another plan starts anew."""

from tercet.shards import Shards, in_shards


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
