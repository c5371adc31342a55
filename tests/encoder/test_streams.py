"""Threads that compute batches side by side."""

import threading
import time

import numpy as np
import pytest
import torch

from tercet import Encoder
from tercet.encoder.forward.batches import batches_for_threads
from tercet.encoder.forward.streams import num_threads, side_by_side
from tercet.errors import SettingError


def test_items_are_computed_side_by_side_and_come_in_order():
    meeting = threading.Barrier(2, timeout=10)  # which two threads have to reach

    def compute(item):
        meeting.wait()
        time.sleep(0.01 * (item % 2))
        return item * item

    assert list(side_by_side(compute, range(6), threads=2)) == [(i, i * i) for i in range(6)]


def test_each_thread_has_one_of_torch_and_the_caller_keeps_its_own():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = [result for _, result in side_by_side(lambda _: torch.get_num_threads(), range(5), threads=4)]
        assert found == [1] * 5
        assert torch.get_num_threads() == 3
        started = []
        thread = threading.Thread(target=lambda: started.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert started == [3]
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_thread_is_raised_and_the_next_items_are_computed_still():
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda item: 1 / item, [1, 0, 2, 3, 4], threads=2))
    assert list(side_by_side(str, [1], threads=2)) == [(1, "1")]


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("num", [1, 5, 300, 3000])
def test_batches_are_as_many_as_keep_all_threads_busy(threads, num):
    lengths = np.random.default_rng(num).integers(2, 60, num).tolist()
    batches = list(batches_for_threads(lengths, max_batch_tokens=2048, threads=threads))
    assert sorted(i for batch in batches for i in batch) == list(range(num))
    tokens = [sum(lengths[i] for i in batch) for batch in batches]
    assert max(tokens) <= max(512, 2048 // threads)
    rounds = -(-len(batches) // threads)
    if sum(lengths) >= 128 * threads:
        assert rounds * max(tokens) <= 1.25 * (sum(lengths) / threads) + 2 * max(lengths)  # the time of the slowest


def test_few_tokens_are_one_batch():
    assert len(list(batches_for_threads([9, 8, 30], max_batch_tokens=2048, threads=8))) == 1
    assert list(batches_for_threads([], max_batch_tokens=2048, threads=8)) == []


def test_a_small_budget_holds_for_all_threads_together():
    batches = list(batches_for_threads([10] * 40, max_batch_tokens=100, threads=2))
    assert max(map(len, batches)) * 10 <= 100


@pytest.mark.parametrize("precision", ["exact", "fast", "int8"])
def test_vectors_are_the_same_on_any_number_of_threads(tiny, sentences, precision, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tiny("t5").save(tmp_path / "model")
    texts = [f"{text} {number}" for number in range(60) for text in sentences]
    found = [
        Encoder.load(tmp_path / "model", device="cpu", threads=threads).embed(texts, precision=precision)
        for threads in (1, 4)
    ]
    np.testing.assert_allclose(found[0], found[1], atol={"exact": 1e-6}.get(precision, 5e-3))


def test_threads_are_what_is_asked_for_or_the_variable_or_what_torch_has(tiny, monkeypatch):
    monkeypatch.delenv("TERCET_THREADS", raising=False)
    assert num_threads() == torch.get_num_threads()
    monkeypatch.setenv("TERCET_THREADS", "7")
    assert num_threads() == 7
    assert num_threads(3) == 3


@pytest.mark.parametrize("wanted", [0, -1, True, 1.5, "2"])
def test_a_number_of_threads_that_is_none_is_refused(wanted):
    with pytest.raises(SettingError, match=r"threads .*: is no number of threads"):
        num_threads(wanted)


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_a_variable_that_is_no_number_of_threads_is_refused(value, monkeypatch):
    monkeypatch.setenv("TERCET_THREADS", value)
    with pytest.raises(SettingError, match="TERCET_THREADS"):
        num_threads()
