"""One inference thread, and the requests that wait for it: admission, order, batches.

A request is admitted by its texts, then by its tokens; what is admitted is computed. Batches are filled with the texts
of all waiting requests. The request that would be done first if each had the thread for itself from its arrival on goes
first: a short one overtakes a long one, but only for so long as the long one would have taken, so none starves.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

import numpy as np

from tercet.encoder.model.arrays import Vectors
from tercet.serving.limits import Limits
from tercet.serving.refusals import Refusal, overloaded, unavailable

logger = logging.getLogger("tercet.serving")

Rows = list[list[int]]
"""The token ids of texts."""

_FIRST_GUESS = 2000.0
"""Tokens a second, before any were computed."""


@dataclass(eq=False)
class Job:
    """A request that waits for its vectors. Cancelling `result` drops what is not computed yet."""

    rows: Rows
    vectors: Vectors
    waiting: list[int]
    """The places of texts that are in no batch yet, the longest last."""

    num_left: int
    arrived: float
    result: "Future[Vectors]" = field(default_factory=Future)


Batch = list[tuple[Job, list[int]]]
"""Of which requests which texts."""


@dataclass(frozen=True)
class Computed:
    """A batch that was computed: for the metrics."""

    num_texts: int
    num_tokens: int
    seconds: float
    waited_s: tuple[float, ...]
    """How long each of its requests had waited."""


class Batcher:
    """Computes the vectors of waiting requests in a thread of its own.

    Args:
        name: The thread's.
        embed: Token ids to vectors, for one batch.
        width: How many numbers a vector has.
        padded: Whether a batch costs its longest text times its number of texts.
        limits: How much may wait, and how much is computed at once.
        watch: Is told of each batch, in the thread.
    """

    def __init__(
        self,
        name: str,
        embed: Callable[[Rows], Vectors],
        *,
        width: int,
        padded: bool,
        limits: Limits,
        watch: Callable[[Computed], None],
    ) -> None:
        self._name = name
        self._embed, self._width, self.padded, self._limits, self._watch = embed, width, padded, limits, watch
        self._heap: list[tuple[float, int, Job]] = []  # by when each would be done if it had the thread for itself
        self._numbers = count()
        self._changed = threading.Condition()
        self._closed = False
        self._tokens_per_s = _FIRST_GUESS
        self._started: float | None = None
        self.num_texts = 0
        self.num_tokens = 0
        self.last_forward = -math.inf
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def reserve(self, num_texts: int) -> None:
        """Take room for the texts of a request, before they are tokenised; `submit` or `release` ends it.

        Raises:
            Refusal: There is no room now (429), there never will be (413), or the thread is dead (503).
        """
        with self._changed:
            self._check_alive()
            self._check_room(num_texts, self.num_texts, self._limits.max_queue, "texts")
            self.num_texts += num_texts

    def release(self, num_texts: int) -> None:
        """Give reserved room back."""
        with self._changed:
            self.num_texts -= num_texts

    def submit(self, rows: Rows) -> "Future[Vectors]":
        """Have reserved texts computed, and return what will hold their vectors; cancel it to drop them.

        Raises:
            Refusal: They have too many tokens, now (429) or always (413). The reservation stays.
        """
        num_tokens = sum(map(len, rows))
        with self._changed:
            self._check_alive()
            self._check_room(num_tokens, self.num_tokens, self._limits.max_queue_tokens, "tokens")
            self.num_tokens += num_tokens
            now = time.monotonic()
            job = Job(
                rows=rows,
                vectors=np.empty((len(rows), self._width), np.float32),
                waiting=sorted(range(len(rows)), key=lambda place: len(rows[place])),
                num_left=len(rows),
                arrived=now,
            )
            heappush(self._heap, (now + num_tokens / self._tokens_per_s, next(self._numbers), job))
            self._changed.notify()
        job.result.add_done_callback(lambda result: self._drop(job) if result.cancelled() else None)
        return job.result

    def is_alive(self, stuck_s: float) -> bool:
        """Return whether the thread lives, and has not been computing one batch for longer than this."""
        started = self._started
        return self._thread.is_alive() and (started is None or time.monotonic() - started < stuck_s)

    def close(self, timeout_s: float | None = None) -> None:
        """End the thread after the batch that it computes; what waits is refused."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _check_alive(self) -> None:
        if self._closed or not self._thread.is_alive():
            raise unavailable("The server is stopping.", code="stopping")

    def _check_room(self, num: int, num_waiting: int, limit: int, what: str) -> None:
        if num > limit:
            message = f"input: has {num:,} {what}, and the server takes at most {limit:,}. Send several requests."
            raise Refusal(413, message, code="too_large", param="input")
        if num_waiting + num > limit:
            wait_s = math.ceil(min(60, max(1, self.num_tokens / self._tokens_per_s)))
            raise overloaded(f"The queue has {num_waiting:,} {what} and takes at most {limit:,}", wait_s)

    def _drop(self, job: Job) -> None:
        with self._changed:
            self._forget(job, job.waiting)
            job.waiting.clear()
            self._heap = [entry for entry in self._heap if entry[2] is not job]
            heapify(self._heap)

    def _forget(self, job: Job, places: Sequence[int]) -> None:
        self.num_texts -= len(places)
        self.num_tokens -= sum(len(job.rows[place]) for place in places)

    def _make_room(self, batch: Batch) -> None:
        """Count a batch no longer: before it is answered, so that whoever has an answer may ask again."""
        with self._changed:
            for job, places in batch:
                self._forget(job, places)

    def _run(self) -> None:
        batch: Batch | None = None
        try:
            while batch := self._next_batch():
                self._compute(batch)
                batch = None  # so that vectors do not stay until the next request
        finally:
            with self._changed:
                self._closed = True
                left = [job for job, _ in batch or []] + [job for *_, job in self._heap]
                self._heap = []
            for job in left:
                _fail(job, unavailable("The server is stopping.", code="stopping"))

    def _next_batch(self) -> Batch | None:
        with self._changed:
            while not self._closed:
                if batch := self._fill():
                    self._started = time.monotonic()
                    return batch
                self._changed.wait()
        return None

    def _fill(self) -> Batch:
        """Take texts off the waiting requests until the next one would be too many."""
        batch: Batch = []
        num = total = longest = 0
        while self._heap:
            job, places = self._heap[0][2], []
            while job.waiting:
                length = len(job.rows[job.waiting[-1]])
                longest = max(longest, length)
                cost = (num + 1) * longest if self.padded else total + length
                if num and cost > self._limits.max_batch_tokens:
                    break
                places.append(job.waiting.pop())
                num, total = num + 1, total + length
            if places:
                batch.append((job, places))
            if job.waiting:
                break
            heappop(self._heap)
        return batch

    def _compute(self, batch: Batch) -> None:
        start = time.monotonic()
        try:
            self._embed_into(batch)
        except Exception as error:  # whatever it is fails the requests of this batch alone; the thread goes on
            if len(batch) > 1:
                logger.warning("%s: a batch of %d requests failed (%r); trying each", self._name, len(batch), error)
                self._compute_each(batch)
            else:
                self._end(batch)
        seconds = time.monotonic() - start
        num_tokens = sum(len(job.rows[place]) for job, places in batch for place in places)
        self._tokens_per_s += 0.2 * (num_tokens / max(seconds, 1e-6) - self._tokens_per_s)
        self._started = None
        waited_s = tuple(start - job.arrived for job, _ in batch)
        self._watch(Computed(sum(len(places) for _, places in batch), num_tokens, seconds, waited_s))

    def _compute_each(self, batch: Batch) -> None:
        """Compute the requests of a failed batch one by one: a bad one must not fail the others."""
        for part in batch:
            try:
                self._embed_into([part])
            except Exception:  # as in `_compute`
                self._end([part])

    def _embed_into(self, batch: Batch) -> None:
        places = [(job, place) for job, chosen in batch for place in chosen]
        places.sort(key=lambda each: len(each[0].rows[each[1]]))
        vectors = self._embed([job.rows[place] for job, place in places])
        self.last_forward = time.monotonic()
        for (job, place), vector in zip(places, vectors, strict=True):
            job.vectors[place] = vector
        self._make_room(batch)
        for job, chosen in batch:
            job.num_left -= len(chosen)
            if not job.num_left:
                _answer(job)

    def _end(self, batch: Batch) -> None:
        """Fail the requests of a batch for the error that is being handled."""
        logger.exception("%s: %d texts could not be computed", self._name, sum(len(places) for _, places in batch))
        self._make_room(batch)
        for job, _ in batch:
            self._drop(job)
            _fail(job, Refusal(500, "The model could not compute these texts.", code="model_error"))


def _answer(job: Job) -> None:
    try:
        job.result.set_result(job.vectors)
    except InvalidStateError:  # the client went in this moment
        pass


def _fail(job: Job, error: Exception) -> None:
    try:
        job.result.set_exception(error)
    except InvalidStateError:
        pass
