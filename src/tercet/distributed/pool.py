"""The driver's side: give tasks to workers, take what they say, and lose nothing when they die, hang or fill a disk."""

import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tercet.distributed.cluster import Cluster
from tercet.distributed.suspects import Search
from tercet.distributed.worker import Answer, Place, Work, Worker, capability, versions
from tercet.errors import ModelError, OutputError, SettingError

logger = logging.getLogger("tercet")

_AHEAD = 2
"""How many tasks a worker has: one that it does, and one that it finds when that is done."""

_TICK_S = 1.0
_LEAST_TIMEOUT_S, _TIMES_SLOWEST = 300.0, 10.0
_FIRST_TIMEOUT_S = 3600.0
"""How long anything may take while nobody knows how long it should."""

_START_S = 600.0
"""How long a worker may take to get its model ready, however short tasks are."""

_ROOM_S = 30.0
"""How long nobody may have found room before a warning says so."""

_MAX_ENDS = 20
"""How many workers may end in a row without anything getting done."""


class Task(Protocol):
    """A piece of work as the pool sees it; what it is about only the worker knows."""

    @property
    def num_rows(self) -> int:
        """How many rows it has."""

    @property
    def label(self) -> str:
        """What it is called in messages."""


@dataclass(frozen=True)
class Failure:
    """A task that cannot be done."""

    task: Any
    error: Exception
    """Why, where a worker said it."""

    row: int | None = None
    """The row of the task that ends every worker; None where none is known."""


@dataclass
class Tally:
    """What happened."""

    num_done: int = 0
    num_retries: int = 0
    """Tasks that were given out again: their worker ended, hung, or could not write."""

    num_lost: int = 0
    """Workers that ended or hung."""

    slowest: str = ""
    slowest_s: float = 0.0


@dataclass(eq=False)
class _Attempt:
    task: Any
    num_tries: int = 0
    search: Search | None = None
    was_searched: bool = False


@dataclass(eq=False)
class _Hand:
    """A worker, and what it was given."""

    actor: Any
    slot: int
    since_s: float
    place: Place | None = None
    is_ready: bool = False
    starting: Any = None
    given: deque[tuple[Any, _Attempt]] = field(default_factory=deque)

    @property
    def refs(self) -> list[Any]:
        """What it owes."""
        return [self.starting] if self.starting is not None else [ref for ref, _ in self.given]


class Pool:
    """Workers on a cluster, replaced when they are lost.

    Args:
        cluster: Where they are.
        make: Makes what a worker does its work with, of `shared`.
        shared: What all workers need; it reaches each machine once.
        num_tasks: How many tasks there are at most, so that no more workers are started.
    """

    def __init__(self, cluster: Cluster, make: Callable[[Any], Work], shared: Any, *, num_tasks: int) -> None:
        self._cluster, self._ray, self._settings = cluster, cluster.ray, cluster.settings
        self._make, self._shared = make, cluster.ray.put(shared)
        self._num_workers = min(cluster.num_workers, max(1, num_tasks))
        self._hands: list[_Hand] = []
        self._todo: deque[_Attempt] = deque()
        self._full: dict[str, Exception] = {}
        self._looked_s = 0.0
        self._was_told = False
        self._num_ends = 0
        self._warned: set[tuple[str, ...]] = set()
        self.tally = Tally()
        self.failures: list[Failure] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_error: object) -> None:
        for hand in self._hands:
            self._end(hand)

    @property
    def note(self) -> str:
        """How things are, in a few words."""
        num_ready = sum(hand.is_ready for hand in self._hands)
        parts = [f"{num_ready} of {self._num_workers} workers"]
        parts += [f"{self.tally.num_retries:,} retries"] if self.tally.num_retries else []
        parts += [f"{len(self.failures):,} failed"] if self.failures else []
        return ", ".join(parts)

    def run(self, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each task that was done with what came of it, in the order in which they end.

        A task that is None says that there is none for now, while others are under way.

        Tasks that cannot be done are in `failures` in the end.

        Raises:
            TercetError: No worker can start, or none can write; what is done so far is done.
        """
        waiting = iter(tasks)
        while True:
            self._give(waiting)
            if not self._todo and not any(hand.given for hand in self._hands):
                return
            refs = [ref for hand in self._hands for ref in hand.refs]
            ready, _ = self._ray.wait(refs, num_returns=1, timeout=_TICK_S)
            if ready:
                done = set(ready)
                for hand in [hand for hand in self._hands if any(ref in done for ref in hand.refs)]:
                    yield from self._take(hand)
            self._end_hanging()

    def _give(self, waiting: Iterator[Any]) -> None:
        """Start workers while there is work, and give each as much as it may have."""
        if not self._todo and (attempt := self._next(waiting)) is not None:
            self._todo.append(attempt)
        while self._todo and len(self._hands) < self._num_workers:
            self._hands.append(self._start())
        for hand in self._hands:
            while hand.is_ready and len(hand.given) < _AHEAD and (attempt := self._next(waiting)) is not None:
                if not hand.given:
                    hand.since_s = time.monotonic()
                hand.given.append((self._submit(hand, attempt), attempt))

    def _next(self, waiting: Iterator[Any]) -> _Attempt | None:
        if self._todo:
            return self._todo.popleft()
        task = next(waiting, None)
        return None if task is None else _Attempt(task)

    def _submit(self, hand: _Hand, attempt: _Attempt) -> Any:
        if attempt.search is not None and attempt.search.range is not None:
            return hand.actor.try_rows.remote(attempt.task, *attempt.search.range)
        return hand.actor.do.remote(attempt.task)

    def _start(self) -> _Hand:
        """Start a worker somewhere; on no node that could not write."""
        settings, ray = self._settings, self._ray
        options: dict[str, Any] = {"num_cpus": settings.cpus_per_worker, "num_gpus": settings.gpus_per_worker}
        if self._full:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(self._full)})"}
        taken = {hand.slot for hand in self._hands}
        slot = next(slot for slot in itertools.count() if slot not in taken)
        num_threads = max(1, int(settings.cpus_per_worker))
        actor = ray.remote(Worker).options(max_restarts=0, **options).remote(num_threads, self._cores_of(slot))
        return _Hand(actor, slot, time.monotonic(), starting=actor.place.remote())

    def _cores_of(self, slot: int) -> Sequence[int] | None:
        """Return the cores that a worker is pinned to; none where others may have them, or there are too few."""
        cores, num = self._cluster.cores, int(self._settings.cpus_per_worker)
        first = slot * num
        if cores is None or num != self._settings.cpus_per_worker or first + num > len(cores):
            return None
        return cores[first : first + num]

    def _take(self, hand: _Hand) -> Iterator[tuple[Any, Any]]:
        """Take what a worker has said, in the order in which it was asked."""
        if hand.starting is not None:
            self._take_start(hand)
            return
        while hand.given:
            ref, attempt = hand.given[0]
            if not self._ray.wait([ref], timeout=0)[0]:
                return
            try:
                answer: Answer = self._ray.get(ref)
            except Exception as error:  # the process, its node or the way to it is gone
                self._lose(hand, _first_line(error))
                return
            hand.given.popleft()
            hand.since_s = time.monotonic()
            self._num_ends = 0
            if attempt.search is not None:
                self._take_search(attempt, attempt.search)
            elif answer.error is not None:
                self._take_error(hand, attempt, answer)
            else:
                self._note_time(attempt, answer)
                yield attempt.task, answer.result

    def _take_start(self, hand: _Hand) -> None:
        """Take the next step of getting a worker ready."""
        try:
            found = self._ray.get(hand.starting)
        except Exception as error:
            self._lose(hand, _first_line(error))
            return
        hand.since_s = time.monotonic()
        if isinstance(found, Place):
            self._compare(found.host, found.versions, versions())
            hand.place = found
            hand.starting = hand.actor.start.remote(self._make, self._shared)
            return
        hand.starting = None
        if found.error is not None:
            host = hand.place.host if hand.place else "a worker"
            unable = ModelError(f"{host}: a worker could not start there ({found.error}). Look at that machine.")
            raise found.error if found.is_final else unable
        if hand.place is not None:
            self._compare(hand.place.host, {"cpu": found.result}, {"cpu": capability()})
        hand.is_ready = True

    def _compare(self, host: str, theirs: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Raise SettingError where a machine has another Tercet; warn where last bits may differ."""
        name = "tercet"
        if theirs.get(name) != own.get(name):
            raise SettingError(
                f"{host}: has Tercet {theirs[name]}, and this machine has {own[name]}. Install the same version."
            )
        different = [name for name in own if theirs[name] and own[name] and theirs[name] != own[name]]
        others = [f"{name} {theirs[name]} instead of {own[name]}" for name in different]
        if others and (host, *others) not in self._warned:
            self._warned.add((host, *others))
            logger.warning("%s: has %s; the last bits of vectors may differ", host, ", ".join(others))

    def _take_search(self, attempt: _Attempt, search: Search) -> None:
        """Go on with a search: these rows ended no worker. An error of theirs shows when the task is done again."""
        search.passed()
        if search.range is None:
            attempt.search, attempt.was_searched, attempt.num_tries = None, True, 0
        self._todo.appendleft(attempt)

    def _take_error(self, hand: _Hand, attempt: _Attempt, answer: Answer) -> None:
        error = answer.error
        if error is None or answer.is_final:
            self.failures.append(Failure(attempt.task, error or RuntimeError("nothing was said")))
        elif isinstance(error, OutputError):
            self._avoid(hand, attempt, error)
        else:
            self._again(attempt, error)

    def _again(self, attempt: _Attempt, error: Exception) -> None:
        attempt.num_tries += 1
        self.tally.num_retries += 1
        if attempt.num_tries >= self._settings.tries:
            self.failures.append(Failure(attempt.task, error))
        else:
            self._todo.append(attempt)

    def _avoid(self, hand: _Hand, attempt: _Attempt, error: OutputError) -> None:
        """Start no worker any more on a node that cannot write, and give its work to others."""
        self._todo.appendleft(attempt)
        self.tally.num_retries += 1
        node = hand.place.node if hand.place else ""
        if node not in self._full:
            logger.warning("%s: is left out from now on: %s", hand.place.host if hand.place else "a node", error)
        self._full[node] = error
        alive = {each["NodeID"] for each in self._ray.nodes() if each["Alive"] and each["Resources"].get("CPU")}
        for other in [each for each in self._hands if each.place and each.place.node == node]:
            self._remove(other)
        if alive <= self._full.keys():
            raise error

    def _lose(self, hand: _Hand, reason: str) -> None:
        """Take note that a worker is gone; what it was doing counts as a try, what it had not begun does not."""
        self.tally.num_lost += 1
        self._num_ends += 1
        if self._num_ends > _MAX_ENDS:
            raise ModelError(
                f"workers: {_MAX_ENDS} ended one after the other, nothing done ({reason}). See Ray's logs."
            )
        if hand.given:
            _, attempt = hand.given.popleft()
            self.tally.num_retries += 1
            self._count_end(attempt, reason)
        self._remove(hand)

    def _count_end(self, attempt: _Attempt, reason: str) -> None:
        """Take note that a worker ended with a task; look for the row where it happened too often."""
        if attempt.search is not None:
            attempt.search.ended()
            if attempt.search.found is not None:
                self.failures.append(Failure(attempt.task, RuntimeError(reason), attempt.search.found))
                return
        else:
            attempt.num_tries += 1
            if attempt.num_tries >= self._settings.tries:
                if attempt.was_searched or attempt.task.num_rows == 0:
                    self.failures.append(Failure(attempt.task, RuntimeError(reason)))
                    return
                logger.warning("%s: ended %d workers; looking for the row", attempt.task.label, attempt.num_tries)
                attempt.search = Search(attempt.task.num_rows)
        self._todo.appendleft(attempt)

    def _end_hanging(self) -> None:
        """End workers that have been silent for too long."""
        now_s = time.monotonic()
        if now_s - self._looked_s < _TICK_S:
            return
        self._looked_s = now_s
        if not self._was_told and self._hands and all(each.place is None for each in self._hands):
            waited_s = now_s - min(each.since_s for each in self._hands)
            if waited_s > _ROOM_S:
                self._was_told = True
                logger.warning(
                    "no worker has found room on the cluster for %.0f s: each needs %g CPUs and %g GPUs (`ray status`)",
                    waited_s,
                    self._settings.cpus_per_worker,
                    self._settings.gpus_per_worker,
                )
        slowest_s = self.tally.slowest_s
        usual_s = max(_LEAST_TIMEOUT_S, _TIMES_SLOWEST * slowest_s) if slowest_s else _FIRST_TIMEOUT_S
        limit_s = self._settings.timeout_s or usual_s
        for hand in [*self._hands]:
            is_waiting = hand.starting is not None and hand.place is None  # for room on the cluster
            silent_s, allowed_s = now_s - hand.since_s, limit_s if hand.is_ready else max(limit_s, _START_S)
            if hand.refs and not is_waiting and silent_s > allowed_s:
                where = hand.place.host if hand.place else "somewhere"
                logger.warning("a worker on %s said nothing for %.0f s; its work goes to others", where, silent_s)
                self._lose(hand, f"it said nothing for {silent_s:.0f} s")

    def _remove(self, hand: _Hand) -> None:
        """End a worker, and keep what it was given for others."""
        self._hands.remove(hand)
        self._todo.extendleft(reversed([attempt for _, attempt in hand.given]))
        hand.given.clear()
        self._end(hand)

    def _end(self, hand: _Hand) -> None:
        with contextlib.suppress(Exception):  # it is gone already, or its node does not answer
            self._ray.kill(hand.actor, no_restart=True)

    def _note_time(self, attempt: _Attempt, answer: Answer) -> None:
        self.tally.num_done += 1
        if answer.seconds > self.tally.slowest_s:
            self.tally.slowest, self.tally.slowest_s = attempt.task.label, answer.seconds


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
