"""The queue and its thread, with a model whose vector of a text is its first token and its length."""

import random
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest
from in_thread import wait_until

from tercet.serving.batching import Batcher
from tercet.serving.limits import Limits
from tercet.serving.refusals import Refusal


class Model:
    """Remembers its batches, and computes when it is let."""

    def __init__(self):
        self.batches = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, rows):
        self.batches.append([row[0] for row in rows])
        assert self.go.wait(20)
        if any(row[0] == 666 for row in rows):
            raise ValueError("a bad text")
        if any(row[0] == 999 for row in rows):
            raise SystemExit
        return np.array([[row[0], len(row)] for row in rows], np.float32)


@pytest.fixture
def start():
    made = []

    def make(model, *, padded=False, **limits):
        computed = []
        batcher = Batcher("test", model, width=2, padded=padded, limits=Limits(**limits), watch=computed.append)
        made.append((batcher, model))
        return batcher, computed

    yield make
    for batcher, model in made:
        model.go.set()
        batcher.close(10)


def ask(batcher, *texts):
    """Submit texts, each given as its number and its length."""
    batcher.reserve(len(texts))
    return batcher.submit([[number] * length for number, length in texts])


def hold(batcher, model):
    """Have the thread hold a batch of one text, so that what follows waits."""
    model.go.clear()
    first = ask(batcher, (0, 1))
    wait_until(lambda: model.batches and model.batches[-1] == [0])
    return first


def test_waiting_requests_share_a_batch_and_each_gets_its_own_vectors_in_its_order(start):
    model = Model()
    batcher, computed = start(model)
    hold(batcher, model)
    asked = [ask(batcher, (10 * i + 1, 5), (10 * i + 2, 2), (10 * i + 3, 9)) for i in range(1, 5)]
    model.go.set()
    for i, result in enumerate(asked, start=1):
        assert result.result(10).tolist() == [[10 * i + 1, 5], [10 * i + 2, 2], [10 * i + 3, 9]]
    assert len(model.batches) == 2
    wait_until(lambda: len(computed) == 2)
    assert (computed[1].num_texts, computed[1].num_tokens, len(computed[1].waited_s)) == (12, 64, 4)


@pytest.mark.parametrize("padded", [False, True])
def test_no_batch_has_more_tokens_than_the_limit_unless_one_text_has(start, padded):
    model, draw = Model(), random.Random(0)
    batcher, _ = start(model, max_batch_tokens=50, padded=padded)
    lengths = {i: draw.randint(1, 30) for i in range(1, 200)} | {200: 70}
    hold(batcher, model)
    numbers = list(lengths)
    draw.shuffle(numbers)
    asked = [ask(batcher, *((i, lengths[i]) for i in numbers[start : start + 7])) for start in range(0, 200, 7)]
    model.go.set()
    for result in asked:
        result.result(10)
    assert sorted(i for batch in model.batches[1:] for i in batch) == sorted(lengths)
    for batch in model.batches[1:]:
        longest = max(lengths[i] for i in batch)
        cost = longest * len(batch) if padded else sum(lengths[i] for i in batch)
        assert cost <= 50 or batch == [200]
    assert len(model.batches) < 150


def test_a_short_request_overtakes_a_long_one_and_cannot_do_so_for_ever(start):
    model = Model()
    batcher, _ = start(model, max_batch_tokens=100)
    hold(batcher, model)
    long = ask(batcher, *((1, 100) for _ in range(6)))  # 0.3 s at the first guess of 2,000 tokens a second
    early = ask(batcher, (2, 100))
    time.sleep(0.5)
    late = ask(batcher, (3, 100))
    model.go.set()
    for result in (long, early, late):
        result.result(10)
    assert model.batches == [[0], [2], *[[1]] * 6, [3]]


def test_what_is_cancelled_is_not_computed_and_makes_room(start):
    model = Model()
    batcher, _ = start(model, max_batch_tokens=10, max_queue=20)
    first = hold(batcher, model)
    gone = ask(batcher, *((1, 10) for _ in range(19)))
    with pytest.raises(Refusal) as refused:
        batcher.reserve(1)
    assert refused.value.status == 429
    assert gone.cancel()
    assert (batcher.num_texts, batcher.num_tokens) == (1, 1)
    stays = ask(batcher, (2, 10))
    model.go.set()
    assert stays.result(10).tolist() == [[2, 10]]
    assert first.result(10).tolist() == [[0, 1]]
    assert model.batches == [[0], [2]]
    with pytest.raises(CancelledError):
        gone.result(0)


def test_a_request_that_is_cancelled_while_it_is_computed_ends_after_that_batch(start):
    model = Model()
    batcher, _ = start(model, max_batch_tokens=10)
    model.go.clear()
    gone = ask(batcher, *((1, 10) for _ in range(9)))
    wait_until(lambda: model.batches)
    gone.cancel()
    model.go.set()
    wait_until(lambda: batcher.num_texts == 0)
    assert (len(model.batches), batcher.num_tokens) == (1, 0)


def test_a_failed_batch_fails_the_request_that_it_fails_for_alone(start, caplog):
    model = Model()
    batcher, _ = start(model)
    hold(batcher, model)
    good, bad, other = ask(batcher, (1, 2)), ask(batcher, (5, 1), (666, 1)), ask(batcher, (3, 4))
    model.go.set()
    assert good.result(10).tolist() == [[1, 2]]
    assert other.result(10).tolist() == [[3, 4]]
    with pytest.raises(Refusal) as refused:
        bad.result(10)
    assert (refused.value.status, refused.value.code) == (500, "model_error")
    assert "a bad text" in caplog.text
    wait_until(lambda: batcher.num_texts == 0)
    assert ask(batcher, (4, 1)).result(10).tolist() == [[4, 1]]


def test_room_is_free_before_an_answer_is_out(start):
    model = Model()
    batcher, _ = start(model)
    hold(batcher, model)
    seen = []
    for rows in ((1, 2), (3, 4)), ((666, 1),):
        result = ask(batcher, *rows)
        result.add_done_callback(lambda _: seen.append((batcher.num_texts, batcher.num_tokens)))
        model.go.set()
        wait_until(result.done)
    wait_until(lambda: len(seen) == 2)
    assert seen == [(0, 0), (0, 0)]


def test_a_forward_that_fails_does_not_count_as_one(start, caplog):
    batcher, _ = start(Model())
    with pytest.raises(Refusal):
        ask(batcher, (666, 1)).result(10)
    assert batcher.last_forward == -np.inf
    before = time.monotonic()
    ask(batcher, (1, 1)).result(10)
    assert batcher.last_forward >= before


def test_what_can_never_fit_is_told_so_and_what_cannot_now_when_to_come_again(start):
    model = Model()
    batcher, _ = start(model, max_queue=10, max_queue_tokens=100)
    with pytest.raises(Refusal, match="has 11 texts, and the server takes at most 10") as refused:
        batcher.reserve(11)
    assert refused.value.status == 413
    hold(batcher, model)
    ask(batcher, (1, 90))
    for too_much, status in ((20, 429), (101, 413)):
        batcher.reserve(1)
        with pytest.raises(Refusal) as refused:
            batcher.submit([[1] * too_much])
        batcher.release(1)
        assert refused.value.status == status
    batcher.reserve(1)
    with pytest.raises(Refusal, match="The queue has 91 tokens and takes at most 100") as refused:
        batcher.submit([[1] * 10])
    batcher.release(1)
    assert 1 <= int(refused.value.headers["retry-after"]) <= 60
    assert (batcher.num_texts, batcher.num_tokens) == (2, 91)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_hangs_or_has_died_is_not_alive(start):
    model = Model()
    batcher, _ = start(model)
    hold(batcher, model)
    assert batcher.is_alive(stuck_s=60)
    assert not batcher.is_alive(stuck_s=0)
    model.go.set()
    dying, waiting = ask(batcher, (999, 1)), ask(batcher, *((1, 2000) for _ in range(9)))
    for result in (dying, waiting):
        with pytest.raises(Refusal) as refused:
            result.result(10)
        assert refused.value.status == 503
    wait_until(lambda: not batcher.is_alive(stuck_s=60))
    with pytest.raises(Refusal) as refused:
        batcher.reserve(1)
    assert refused.value.status == 503


def test_closing_ends_the_batch_and_refuses_what_waits(start):
    model = Model()
    batcher, _ = start(model)
    first = hold(batcher, model)
    waiting = ask(batcher, (1, 1))
    closing = threading.Thread(target=batcher.close)
    closing.start()
    model.go.set()
    closing.join(10)
    assert first.result(0).tolist() == [[0, 1]]
    with pytest.raises(Refusal, match="stopping"):
        waiting.result(0)


def test_the_queue_keeps_its_limits_whatever_many_clients_do(start):
    model = Model()
    batcher, _ = start(model, max_batch_tokens=64, max_queue=40, max_queue_tokens=300)
    most = {"texts": 0, "tokens": 0}

    def be_a_client(seed):
        draw, answered, refused = random.Random(seed), 0, 0
        for _ in range(60):
            texts = [(draw.randint(1, 600), draw.randint(1, 20)) for _ in range(draw.randint(1, 12))]
            try:
                batcher.reserve(len(texts))
            except Refusal:
                refused += 1
                continue
            try:
                result = batcher.submit([[number] * length for number, length in texts])
            except Refusal:
                batcher.release(len(texts))
                refused += 1
                continue
            most["texts"] = max(most["texts"], batcher.num_texts)
            most["tokens"] = max(most["tokens"], batcher.num_tokens)
            if draw.random() < 0.3:
                result.cancel()
            else:
                assert result.result(20).tolist() == [list(text) for text in texts]
                answered += 1
        return answered, refused

    with ThreadPoolExecutor(24) as pool:
        counts = list(pool.map(be_a_client, range(24)))
    assert most["texts"] <= 40
    assert most["tokens"] <= 300
    assert min(sum(column) for column in zip(*counts, strict=True)) > 0
    wait_until(lambda: (batcher.num_texts, batcher.num_tokens) == (0, 0))
