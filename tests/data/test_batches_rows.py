"""Batches of rows: epochs, shuffling, mixing, going on from any position, and batches without duplicates."""

import json
from collections import Counter
from itertools import chain, islice

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tercet import InputError, SettingError
from tercet.data.feeding.mixing import mix
from tercet.data.feeding.sources import open_rows
from tercet.data.feeding.stores import StreamFeed
from tercet.data.reading.entries import Entry
from tercet.data.rows.gate import Gate, RejectFile
from tercet.data.rows.kinds import Text, texts_of
from tercet.data.rows.records import RecordReader
from tercet.data.rows.settings import RowSettings


def pairs(tmp_path, name, num, *, ending="jsonl"):
    """Write pairs whose anchors tell their file and number."""
    records = [{"anchor": f"{name}{i}", "positive": f"{name}{i} too"} for i in range(num)]
    path = tmp_path / f"{name}.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path, row_group_size=4)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def anchors(batches):
    return [[row.anchor for row in batch] for batch in batches]


def flat(lists):
    return [*chain.from_iterable(lists)]


def test_an_epoch_has_every_row_once_in_an_order_of_its_own(tmp_path):
    rows = open_rows(pairs(tmp_path, "a", 12), kind="triplets")
    batches = rows.batches(batch=4, seed=5, epochs=3)
    assert batches.num_batches == 9
    got = anchors(batches)
    epochs = [flat(got[i : i + 3]) for i in (0, 3, 6)]
    assert all(sorted(epoch) == sorted(f"a{i}" for i in range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert anchors(rows.batches(batch=4, seed=5, epochs=3)) == got
    assert anchors(rows.batches(batch=4, seed=6, epochs=3)) != got


def test_the_order_is_that_of_one_permutation_for_each_epoch(tmp_path):
    rows = open_rows(pairs(tmp_path, "a", 10), kind="triplets")
    got = flat(anchors(rows.batches(batch=5, seed=7, epochs=2)))
    expected = [np.random.default_rng([7, 0, 0, epoch]).permutation(10) for epoch in (0, 1)]
    assert got == [f"a{i}" for order in expected for i in order]


def test_the_last_incomplete_batch_of_an_epoch_is_left_out(tmp_path):
    rows = open_rows(pairs(tmp_path, "a", 11), kind="triplets")
    got = anchors(rows.batches(batch=4, seed=0, epochs=2))
    assert [len(batch) for batch in got] == [4, 4, 4, 4]
    assert len(set(flat(got[:2]))) == len(set(flat(got[2:]))) == 8


def test_rows_fewer_than_a_batch_are_one_batch(tmp_path):
    rows = open_rows(pairs(tmp_path, "a", 3), kind="triplets")
    assert [sorted(batch) for batch in anchors(rows.batches(batch=8, seed=0, epochs=2))] == [["a0", "a1", "a2"]] * 2


def test_without_epochs_batches_have_no_end(tmp_path):
    batches = open_rows(pairs(tmp_path, "a", 5), kind="triplets").batches(batch=2, seed=0, epochs=None)
    assert batches.num_batches is None
    assert len([*islice(batches, 50)]) == 50


def test_without_shuffling_rows_come_as_they_stand(tmp_path):
    sources = [pairs(tmp_path, "a", 3), pairs(tmp_path, "b", 3)]
    rows = open_rows({"sources": sources, "shuffle": False}, kind="triplets")
    assert anchors(rows.batches(batch=2, seed=0, epochs=1)) == [["a0", "a1"], ["a2", "b0"], ["b1", "b2"]]


def test_parquet_is_shuffled_by_row_group(tmp_path):
    rows = open_rows(pairs(tmp_path, "a", 22, ending="parquet"), kind="triplets")
    orders = [flat(anchors(rows.batches(batch=1, seed=seed, epochs=1))) for seed in range(20)]
    for order in orders:
        assert sorted(order) == sorted(f"a{i}" for i in range(22))
        groups = [int(anchor[1:]) // 4 for anchor in order]
        assert len([i for i in range(1, 22) if groups[i] != groups[i - 1]]) == 5
    assert len({tuple(order) for order in orders}) == 20


SOURCES = {
    "one": lambda folder: [pairs(folder, "a", 13)],
    "parquet": lambda folder: [pairs(folder, "a", 13, ending="parquet")],
    "two": lambda folder: [pairs(folder, "a", 9), pairs(folder, "b", 5, ending="parquet")],
    "weights": lambda folder: [
        {"path": pairs(folder, "a", 9), "weight": 1},
        {"path": pairs(folder, "b", 5), "weight": 3},
        {"path": pairs(folder, "c", 4), "weight": 0.5},
    ],
}


@pytest.mark.parametrize("no_duplicates", [False, True])
@pytest.mark.parametrize("mixing", ["mixed", "one_source_per_batch"])
@pytest.mark.parametrize("sources", SOURCES)
def test_going_on_at_any_position_gives_the_uninterrupted_order(tmp_path, sources, mixing, no_duplicates):
    settings = {"sources": SOURCES[sources](tmp_path), "mixing": mixing, "no_duplicates": no_duplicates}
    for seed in (0, 1):
        whole = open_rows(settings, kind="triplets").batches(batch=4, seed=seed, epochs=3)
        states, expected = [whole.state()], []
        for batch in whole:
            expected.append(batch)
            states.append(json.loads(json.dumps(whole.state())))
        assert len(expected) == whole.num_batches > 3
        for position, state in enumerate(states):
            rows = open_rows(settings, kind="triplets")
            rest = rows.batches(batch=4, seed=seed, epochs=3, state=state)
            assert list(rest) == expected[position:]
            assert rest.state() == states[-1]


@pytest.mark.parametrize("world", [2, 4])
def test_processes_get_parts_that_make_up_the_batch_of_one(tmp_path, world):
    for sources in (SOURCES["two"](tmp_path), [pairs(tmp_path, "c", 3)]):
        for no_duplicates in (False, True):
            rows = open_rows({"sources": sources, "no_duplicates": no_duplicates}, kind="triplets")
            whole = rows.batches(batch=4, seed=3, epochs=2)
            expected, states = [], []
            for batch in whole:
                expected.append(batch)
                states.append(whole.state())
            parts = [rows.batches(batch=4, seed=3, epochs=2, rank=rank, world=world) for rank in range(world)]
            for batch, state in zip(expected, states, strict=True):
                assert flat([next(part) for part in parts]) == batch
                assert all(part.state() == state for part in parts)
            alone = rows.batches(batch=4, seed=3, epochs=2, state=states[0], rank=1, world=world)
            size = len(expected[1])
            assert next(alone) == expected[1][size // world : size * 2 // world]


def test_sources_are_mixed_evenly_where_they_have_no_weights(tmp_path):
    rows = open_rows([pairs(tmp_path, "a", 300), pairs(tmp_path, "b", 100)], kind="triplets")
    got = anchors(rows.batches(batch=40, seed=0, epochs=1))
    assert sorted(flat(got)) == sorted([f"a{i}" for i in range(300)] + [f"b{i}" for i in range(100)])
    shares = [sum(anchor[0] == "b" for anchor in batch) for batch in got]
    assert min(shares) >= 2 and max(shares) <= 20 and len(set(shares)) > 1


def test_weights_are_the_shares_of_sources(tmp_path):
    sources = [{"path": pairs(tmp_path, "a", 90), "weight": 1}, {"path": pairs(tmp_path, "b", 30), "weight": 3}]
    rows = open_rows(sources, kind="triplets")
    batches = rows.batches(batch=10, seed=0, epochs=3)
    assert batches.num_batches == 36
    got = anchors(batches)
    for epoch in range(3):
        drawn = Counter(anchor[0] for batch in got[12 * epoch : 12 * epoch + 12] for anchor in batch)
        assert drawn == {"a": 30, "b": 90}
    seen = Counter(anchor for batch in got for anchor in batch)
    assert {seen[f"a{i}"] for i in range(90)} == {1}, "a source goes on in the next epoch where it was"
    assert {seen[f"b{i}"] for i in range(30)} == {9}


@pytest.mark.parametrize("one_source_per_batch", [False, True])
@pytest.mark.parametrize(
    ("num_rows", "weights", "batch"),
    [
        ([200, 100, 100], [1, 1, 1], 100),
        ([400, 400, 400], [1, 1, 1], 400),
        ([90, 210], [1, 999], 4),
        ([7] * 9, [1] * 9, 7),
    ],
)
def test_shares_add_up_to_whole_batches(num_rows, weights, batch, one_source_per_batch):
    mixture = mix(num_rows, weights=weights, batch=batch, one_source_per_batch=one_source_per_batch)
    counts = [count for lane in mixture.lanes for count in lane.counts]
    assert sum(counts) == sum(num_rows) // batch * batch == mixture.num_batches * batch
    unit = batch if one_source_per_batch else 1
    for count, weight in zip(counts, weights, strict=True):
        exact = sum(counts) / unit * weight / sum(weights)
        assert count / unit == pytest.approx(max(exact, 1), abs=1)


def test_no_row_is_lost_between_epochs_where_shares_are_fractions(tmp_path):
    sources = [{"path": pairs(tmp_path, name, num), "weight": 1} for name, num in (("a", 20), ("b", 10), ("c", 10))]
    got = flat(anchors(open_rows(sources, kind="triplets").batches(batch=10, seed=0, epochs=3)))
    seen = Counter(got)
    for name, num in (("a", 20), ("b", 10), ("c", 10)):
        times = [seen[f"{name}{i}"] for i in range(num)]
        assert max(times) - min(times) <= 1


def test_a_batch_can_have_rows_of_one_source_only(tmp_path):
    sources = [pairs(tmp_path, "a", 12), pairs(tmp_path, "b", 9), pairs(tmp_path, "c", 2)]
    rows = open_rows({"sources": sources, "mixing": "one_source_per_batch"}, kind="triplets")
    batches = rows.batches(batch=4, seed=1, epochs=2)
    assert batches.num_batches == 12
    got = anchors(batches)
    assert all(len({anchor[0] for anchor in batch}) == 1 for batch in got)
    for epoch in (got[:6], got[6:]):
        assert Counter(batch[0][0] for batch in epoch) == {"a": 3, "b": 2, "c": 1}
        assert len(set(flat(epoch))) == len(flat(epoch)) == 12 + 8 + 2
    weighted = [{"path": path, "weight": weight} for path, weight in zip(sources, (1, 1, 3), strict=True)]
    rows = open_rows({"sources": weighted, "mixing": "one_source_per_batch"}, kind="triplets")
    got = anchors(rows.batches(batch=4, seed=1, epochs=1))
    assert Counter(batch[0][0] for batch in got) == {"a": 1, "b": 1, "c": 3}
    assert {len(batch) for batch in got} == {4}


def repeated(tmp_path, num):
    """Write rows of which many share a text."""
    rng = np.random.default_rng(0)
    records = [
        {"anchor": f"a{rng.integers(num // 3)}", "positive": f"p{i}", "negative": f"a{rng.integers(num)}"}
        for i in range(num)
    ]
    path = tmp_path / "repeated.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_rows_that_share_a_text_are_kept_out_of_one_batch(tmp_path):
    path = repeated(tmp_path, 120)
    plain = open_rows(path, kind="triplets")
    assert any(clashes(batch) for batch in plain.batches(batch=12, seed=0, epochs=2))
    rows = open_rows({"sources": [path], "no_duplicates": True}, kind="triplets")
    batches = rows.batches(batch=12, seed=0, epochs=4)
    got = list(batches)
    assert len(got) == batches.num_batches == 40
    assert not any(clashes(batch) for batch in got)
    assert batches.num_left_out == 0
    seen = Counter(row for batch in got for row in batch)
    waiting = batches.state()["lanes"][0]["waiting"]
    assert waiting, "the test needs rows that wait"
    assert sum(seen.values()) == 480
    assert all(3 <= seen[row] <= 5 for row in plain)


def clashes(batch):
    texts = [text for row in batch for text in set(texts_of(row))]
    return len(texts) != len(set(texts))


def test_going_on_with_rows_that_wait_gives_the_uninterrupted_order(tmp_path):
    settings = {"sources": [repeated(tmp_path, 60)], "no_duplicates": True}
    whole = open_rows(settings, kind="triplets").batches(batch=10, seed=2, epochs=3)
    states, expected = [whole.state()], []
    for batch in whole:
        expected.append(batch)
        states.append(json.loads(json.dumps(whole.state())))
    assert sum(bool(state["lanes"][0]["waiting"]) for state in states) > 5
    for position, state in enumerate(states):
        rest = open_rows(settings, kind="triplets").batches(batch=10, seed=2, epochs=3, state=state)
        assert list(rest) == expected[position:]


def test_equal_texts_are_kept_out_of_one_batch(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x\ny\nx\nz\n")
    rows = open_rows({"sources": [path], "no_duplicates": True}, kind="triplets")
    got = [*islice(rows.batches(batch=2, seed=0, epochs=None), 30)]
    assert all(isinstance(row, Text) for batch in got for row in batch)
    assert all(len({row.text for row in batch}) == 2 for batch in got)


def test_a_text_that_is_too_frequent_is_left_out_in_part_and_counted(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    records = [{"anchor": "same" if i % 4 == 0 else f"a{i}", "positive": f"p{i}"} for i in range(400)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    rows = open_rows({"sources": [path], "no_duplicates": True}, kind="triplets")
    batches = rows.batches(batch=20, seed=0, epochs=2)
    assert all(sum(row.anchor == "same" for row in batch) <= 1 for batch in batches)
    assert batches.num_left_out > 1
    assert caplog.text.count("too many others and are left out") == 1
    assert len(batches.state()["lanes"][0]["waiting"]) <= 80


def test_batches_that_cannot_be_without_duplicates_are_an_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"anchor": "same", "positive": f"p{i}"}) + "\n" for i in range(8)))
    rows = open_rows({"sources": [path], "no_duplicates": True}, kind="triplets")
    with pytest.raises(InputError, match="no 4 without a text in common"):
        next(rows.batches(batch=4, seed=0, epochs=1))


def test_a_state_of_other_rows_or_settings_is_refused(tmp_path):
    rows = open_rows(pairs(tmp_path, "a", 8), kind="triplets")
    state = rows.batches(batch=4, seed=0, epochs=1).state()
    with pytest.raises(InputError, match="has seed "):
        rows.batches(batch=4, seed=1, epochs=1, state=state)
    with pytest.raises(InputError, match="has batch "):
        rows.batches(batch=2, seed=0, epochs=1, state=state)
    other = open_rows(pairs(tmp_path, "a", 9), kind="triplets")
    with pytest.raises(InputError, match="has rows "):
        other.batches(batch=4, seed=0, epochs=1, state=state)


@pytest.mark.parametrize(
    "numbers", [{"batch": 0}, {"batch": 3, "world": 2}, {"rank": 2, "world": 2}, {"epochs": 0}, {"seed": -1}]
)
def test_numbers_that_do_not_fit_are_refused(tmp_path, numbers):
    rows = open_rows(pairs(tmp_path, "a", 8), kind="triplets")
    with pytest.raises(SettingError):
        rows.batches(**{"batch": 4, "seed": 0, "epochs": 1, **numbers})


class Stream:
    """A dataset that can only be read from its start."""

    names = blocks = None

    def __init__(self, num, *, bad=()):
        self.records = [{"anchor": "" if i in bad else f"s{i}", "positive": f"p{i}"} for i in range(num)]
        self.num_starts = 0

    def entries(self):
        self.num_starts += 1
        yield from (Entry(i + 1, i, record) for i, record in enumerate(self.records))


def feed(stream, tmp_path=None, *, seed=0, buffer=4, **settings):
    gate = Gate("stream", RecordReader("triplets"), RowSettings.of({"sources": ["x"], **settings}))
    rejects = RejectFile(tmp_path / "rejects.jsonl" if tmp_path else None, streamed=["stream"])
    return StreamFeed(stream, gate, rejects, seed=[seed], buffer=buffer), gate


def test_a_stream_is_shuffled_a_buffer_at_a_time_and_begins_again_at_its_end():
    rows, _ = feed(Stream(10), buffer=4)
    got = [rows.row(i).anchor for i in range(30)]
    for first in (0, 10, 20):
        for start, end in ((0, 4), (4, 8), (8, 10)):
            assert sorted(got[first + start : first + end]) == [f"s{i}" for i in range(start, end)]
    assert len({tuple(got[i : i + 10]) for i in (0, 10, 20)}) == 3
    other, _ = feed(Stream(10), seed=1)
    assert [other.row(i).anchor for i in range(30)] != got


def test_any_row_of_a_stream_can_be_reached_again():
    rows, _ = feed(Stream(11))
    expected = [rows.row(i) for i in range(40)]
    for i in (39, 0, 17, 3, 25):
        assert rows.row(i) == expected[i]
        fresh, _ = feed(Stream(11))
        assert [fresh.row(j) for j in range(i, 40)] == expected[i:]


def test_a_small_stream_is_not_read_over_and_over_to_fill_a_buffer():
    stream = Stream(3)
    rows, _ = feed(stream, buffer=1000)
    assert {rows.row(i).anchor for i in range(3)} == {"s0", "s1", "s2"}
    assert stream.num_starts == 1


def test_bad_rows_of_a_stream_are_counted_and_told_of_once(tmp_path):
    settings = {"on_error": "skip", "max_bad_fraction": 0.3}
    rows, gate = feed(Stream(10, bad=(2, 7)), tmp_path, **settings)
    for i in (30, 0, 20):
        rows.row(i)
    assert gate.counts == {"num_read": 10, "num_bad": 2, "num_unlabelled": 0, "num_rows": 8}
    again, _ = feed(Stream(10, bad=(2, 7)), tmp_path, **settings)
    again.row(9)
    told = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert [reject["line"] for reject in told] == [3, 8]


def test_too_many_bad_rows_of_a_stream_end_it():
    rows, _ = feed(Stream(10, bad=(2, 7)), on_error="skip", max_bad_fraction=0.1)
    with pytest.raises(InputError, match="stream: 2 of 10 rows are bad"):
        for i in range(20):
            rows.row(i)


def test_a_stream_without_rows_is_an_error():
    rows, _ = feed(Stream(0))
    with pytest.raises(InputError, match="no rows to learn from"):
        rows.row(0)
