"""Rows that can be read in any order, and the endless sequence that a seed makes of them."""

import itertools
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tercet.data.reading.entries import Entry, changed
from tercet.data.rows.checks import BadRecord
from tercet.data.rows.gate import Gate, RejectFile
from tercet.data.rows.kinds import Row
from tercet.data.rows.nli import Premises
from tercet.data.rows.records import RecordReader
from tercet.errors import InputError

_ENOUGH_TO_JUDGE = 10_000  # records of a stream, before it may have too many bad ones

Numbers = NDArray[np.unsignedinteger[Any]]


class Records(Protocol):
    """A file or dataset whose records can be read by their place."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns, where they are known before a record is read."""

    @property
    def blocks(self) -> Sequence[int] | None:
        """The first place of each piece that is read as a whole; None where any record is read by itself."""

    def use(self, columns: Collection[str]) -> None:
        """Read no other columns from now on."""

    def entries(self) -> Iterator[Entry]:
        """Yield what stands there, from the start."""

    def record_at(self, place: int) -> dict[str, Any]:
        """Return the record at a place."""

    def check_unchanged(self) -> None:
        """Raise InputError if it is not as it was."""


class Store(Protocol):
    """Rows that can be read in any order."""

    def __len__(self) -> int: ...

    def row(self, number: int) -> Row:
        """Return a row."""

    def order(self, rng: np.random.Generator) -> Numbers:
        """Return the numbers of all rows in an order that is drawn by `rng`."""


class IndexedRows:
    """Rows that stay in their file: 8 bytes of memory each, for the place of its record.

    Args:
        name: The source, as messages name it.
        records: Where they stand.
        reader: Makes rows of records.
        places: The place of each row, in ascending order; a record with several rows has its place several times.
    """

    def __init__(self, name: str, records: Records, reader: RecordReader, places: "array[int]") -> None:
        self._name = name
        self._records = records
        self._reader = reader
        self._places = np.frombuffer(places, np.int64) if places else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def row(self, number: int) -> Row:
        """Return a row."""
        place = self._places[number]
        try:
            rows = self._reader.rows(self._records.record_at(int(place)))
            return rows[0] if len(rows) == 1 else rows[number - int(np.searchsorted(self._places, place))]
        except (BadRecord, IndexError) as error:
            raise changed(self._name) from error

    def order(self, rng: np.random.Generator) -> Numbers:
        """Return all numbers, shuffled; those of a block that is read as a whole stay together."""
        self._records.check_unchanged()
        numbers = _numbers(len(self))
        if self._records.blocks is None:
            return rng.permutation(numbers)
        pieces = np.split(numbers, np.searchsorted(self._places, self._records.blocks)[1:])
        return np.concatenate([rng.permutation(pieces[i]) for i in rng.permutation(len(pieces))])


class PremiseRows:
    """Triplets that pairs were grouped to, in memory."""

    def __init__(self, premises: Premises) -> None:
        self._premises = premises

    def __len__(self) -> int:
        return len(self._premises)

    def row(self, number: int) -> Row:
        """Return a row."""
        return self._premises.row(number)

    def order(self, rng: np.random.Generator) -> Numbers:
        """Return all numbers, shuffled."""
        return rng.permutation(_numbers(len(self)))


class Feed(Protocol):
    """The rows of one source in the order in which training takes them, without an end."""

    def row(self, number: int) -> Row:
        """Return the row with a number, from 0."""


class StoreFeed:
    """Pass after pass over a store, each in an order of its own.

    Args:
        store: The rows.
        seed: What orders are drawn from, with the number of the pass.
        shuffle: Whether they are shuffled.
    """

    def __init__(self, store: Store, *, seed: Sequence[int], shuffle: bool = True) -> None:
        self._store = store
        self._seed = seed
        self._shuffle = shuffle
        self._pass: tuple[int, Numbers] = (-1, _numbers(0))

    def row(self, number: int) -> Row:
        """Return the row with a number, from 0."""
        pass_number, i = divmod(number, len(self._store))
        if not self._shuffle:
            return self._store.row(i)
        if self._pass[0] != pass_number:
            self._pass = (-1, _numbers(0))  # two orders need not be in memory
            self._pass = (pass_number, self._store.order(np.random.default_rng([*self._seed, pass_number])))
        return self._store.row(int(self._pass[1][i]))


class StreamFeed:
    """Pass after pass over records that come in one order only, shuffled a buffer at a time.

    The buffer takes the next rows of the stream, is shuffled, and is given out whole before it is filled again. A row
    that came earlier is reached by reading the stream again from its start, which is how a killed run goes on.

    Args:
        records: The stream.
        gate: Lets good rows through.
        rejects: Where bad ones are told of.
        seed: What orders are drawn from, with the number of a buffer's first row.
        shuffle: Whether they are shuffled.
        buffer: How many rows are shuffled at a time.
    """

    def __init__(
        self,
        records: Records,
        gate: Gate,
        rejects: RejectFile,
        *,
        seed: Sequence[int],
        shuffle: bool = True,
        buffer: int,
    ) -> None:
        self._records, self._gate, self._rejects = records, gate, rejects
        self._seed, self._shuffle, self._size = seed, shuffle, buffer
        self._first, self._buffer, self._in_order = 0, list[Row](), False
        self._rows = self._next_pass()

    def row(self, number: int) -> Row:
        """Return the row with a number, from 0."""
        if number < self._first:
            self._first, self._buffer, self._rows = 0, [], self._next_pass()
        while number >= self._first + len(self._buffer):
            self._fill()
        if not self._in_order:
            order = np.random.default_rng([*self._seed, self._first]).permutation(len(self._buffer))
            self._buffer = [self._buffer[i] for i in order]
            self._in_order = True
        return self._buffer[number - self._first]

    def _fill(self) -> None:
        """Take the next rows; a buffer ends where a pass ends."""
        self._first += len(self._buffer)
        self._in_order = not self._shuffle
        self._buffer = [*itertools.islice(self._rows, self._size)]
        if self._buffer and self._gate.counts["num_read"] < _ENOUGH_TO_JUDGE:
            return
        self._gate.check_fraction()
        if not self._buffer:
            self._rows = self._next_pass()
            self._buffer = [*itertools.islice(self._rows, self._size)]
            if not self._buffer:
                raise no_rows(self._gate.name)

    def _next_pass(self) -> Iterator[Row]:
        for _, rows in self._gate.rows(self._records.entries(), self._rejects.append):
            yield from rows


def no_rows(name: str, by_rule: str = "") -> InputError:
    """Return the error for a source that has none, and what rules left out."""
    rules = f"; rules left out: {by_rule}" if by_rule else ""
    return InputError(f"{name}: has no rows to learn from{rules}. Check the file and its columns.")


def _numbers(num: int) -> Numbers:
    return np.arange(num, dtype=np.uint32 if num <= np.iinfo(np.uint32).max else np.uint64)
