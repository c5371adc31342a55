"""Batches of rows, and the position from which they can go on."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tercet.data.feeding.mixing import Lane, Mixture, Slot
from tercet.data.feeding.stores import Feed
from tercet.data.rows.kinds import Row, texts_of
from tercet.errors import InputError

logger = logging.getLogger("tercet")

T = TypeVar("T")

_MAX_WAITING = 4  # batches of rows that wait at a time
_MANY = 64  # batches of rows, at least, that are tried to fill one


class Batches:
    """An iterator of batches; with several processes, of this one's part of each batch.

    Args:
        feeds: The rows of each source.
        mixture: How they are mixed.
        seed: What draws are made from.
        shuffle: Whether there are any.
        no_duplicates: Whether rows that share a text are kept out of one batch.
        epochs: When to end; None for never.
        identity: What must be the same for a state to fit.
        state: Where to go on.
        rank: Which part of each batch this process gets.
        world: How many parts there are.

    Raises:
        InputError: The state is of other rows, or of other settings.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        mixture: Mixture,
        *,
        seed: int,
        shuffle: bool,
        no_duplicates: bool,
        epochs: int | None,
        identity: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.num_batches = None if epochs is None else epochs * mixture.num_batches
        """How many batches there are in all epochs; None where there is no end."""
        self._mixture, self._feeds = mixture, feeds
        self._seed, self._shuffle, self._no_duplicates = seed, shuffle, no_duplicates
        self._rank, self._world = rank, world
        self._identity = {**identity, "seed": seed}
        self._turns: tuple[int, list[int]] = (-1, [])
        if state is not None:
            _check_fits(state, self._identity)
        self._done: int = state["done"] if state else 0
        places = state["lanes"] if state else [_START] * len(mixture.lanes)
        self._queues = [
            _Queue(lane, self._row, place, seed=seed, shuffle=shuffle)
            for lane, place in zip(mixture.lanes, places, strict=True)
        ]

    def __iter__(self) -> Iterator[list[Row]]:
        return self

    def __next__(self) -> list[Row]:
        if self.num_batches is not None and self._done >= self.num_batches:
            raise StopIteration
        queue = self._queues[self._next_lane()]
        if self._no_duplicates:
            rows = self._own(queue.take_distinct())
        else:
            rows = [self._row(slot) for slot in self._own(queue.take())]
        self._done += 1
        return rows

    def state(self) -> dict[str, Any]:
        """Return the position after the last batch, as JSON: what comes next follows from it and nothing else."""
        return {**self._identity, "done": self._done, "lanes": [queue.state() for queue in self._queues]}

    @property
    def num_left_out(self) -> int:
        """How many rows clashed with others so often that they were left out."""
        return sum(queue.num_left_out for queue in self._queues)

    def _row(self, slot: Slot) -> Row:
        source, number = slot
        return self._feeds[source].row(number)

    def _own(self, batch: list[T]) -> list[T]:
        first, end = (len(batch) * rank // self._world for rank in (self._rank, self._rank + 1))
        return batch[first:end]

    def _next_lane(self) -> int:
        epoch, i = divmod(self._done, self._mixture.num_batches)
        if self._turns[0] != epoch:
            self._turns = (epoch, self._mixture.turns(epoch, seed=self._seed, shuffle=self._shuffle))
        return self._turns[1][i]


_START = {"taken": 0, "waiting": [], "left_out": 0}


class _Queue:
    """One lane: how far it is, and the rows that wait for a batch without their texts."""

    def __init__(
        self, lane: Lane, read: Callable[[Slot], Row], state: Mapping[str, Any], *, seed: int, shuffle: bool
    ) -> None:
        self._lane, self._read = lane, read
        self._taken: int = state["taken"]
        self.num_left_out: int = state["left_out"]
        slots = [(source, number) for source, number in state["waiting"]]
        self._waiting = [(slot, read(slot)) for slot in slots]
        self._slots = lane.slots(self._taken, seed=seed, shuffle=shuffle)

    def take(self) -> list[Slot]:
        """Return the slots of the next batch."""
        self._taken += self._lane.batch
        return [next(self._slots) for _ in range(self._lane.batch)]

    def take_distinct(self) -> list[Row]:
        """Return the next rows that share no text: those that wait first, then new ones. What clashes waits."""
        rows: list[Row] = []
        texts: set[str] = set()

        def fits(row: Row) -> bool:
            own = texts_of(row)
            if len(rows) == self._lane.batch or not texts.isdisjoint(own):
                return False
            rows.append(row)
            texts.update(own)
            return True

        self._waiting = [(slot, row) for slot, row in self._waiting if not fits(row)]
        num_clashes = 0
        while len(rows) < self._lane.batch:
            slot = next(self._slots)
            self._taken += 1
            row = self._read(slot)
            if fits(row):
                continue
            num_clashes += 1
            if len(self._waiting) < _MAX_WAITING * self._lane.batch:
                self._waiting.append((slot, row))
            else:
                if not self.num_left_out:
                    logger.warning("rows: some share a text with too many others and are left out. Lower the batch.")
                self.num_left_out += 1
            if num_clashes > self._lane.batch * max(self._lane.num_batches, _MANY):
                raise InputError(
                    f"rows: {num_clashes:,} of them had no {self._lane.batch:,} without a text in common. "
                    "Lower the batch, or set no_duplicates: false."
                )
        return rows

    def state(self) -> dict[str, Any]:
        waiting = [[*slot] for slot, _ in self._waiting]
        return {"taken": self._taken, "waiting": waiting, "left_out": self.num_left_out}


def _check_fits(state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    for name, value in identity.items():
        if state.get(name) != value:
            raise InputError(
                f"rows: the position to go on from has {name} {state.get(name)}, and now it is {value}. "
                "Go on with the data and settings that it was begun with, or start anew."
            )
