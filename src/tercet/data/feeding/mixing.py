"""Which source gives the next row, and which sources give the next batch: whole numbers only, no data.

A lane is what one batch is taken from: all sources together, or one of them. An epoch is a fixed number of rows of each
lane, and of batches, so that everything about it follows from the seed and its number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_STREAM_EPOCH = 1024  # batches
_PIECE = 65_536  # slots that are turned into Python's numbers at a time

Slot = tuple[int, int]
"""A source, and the number of a row in its endless sequence."""

_SLOTS, _TURNS = 1, 2  # keep the two kinds of draws apart; 0 is for the orders of sources


@dataclass(frozen=True)
class Lane:
    """What a batch is taken from.

    Attributes:
        sources: The sources that it has.
        counts: How many rows of each an epoch goes over; what is over whole batches is left out.
        batch: How many rows a batch has.
    """

    sources: tuple[int, ...]
    counts: tuple[int, ...]
    batch: int

    @property
    def num_batches(self) -> int:
        """How many batches an epoch has."""
        return sum(self.counts) // self.batch

    def slots(self, start: int, *, seed: int, shuffle: bool) -> Iterator[Slot]:
        """Yield slots without an end, from the one with number `start` on."""
        num_slots = self.batch * self.num_batches
        epoch, place = divmod(start, num_slots)
        while True:
            turns = self._turns(epoch, seed=seed, shuffle=shuffle)
            behind = [epoch * count for count in self.counts]
            for i in range(len(self.sources)):
                behind[i] += place if turns is None else int(np.count_nonzero(turns[:place] == i))
            for first in range(place, num_slots, _PIECE):
                piece = slice(first, min(first + _PIECE, num_slots))
                for i in [0] * (piece.stop - first) if turns is None else turns[piece].tolist():
                    yield self.sources[i], behind[i]
                    behind[i] += 1
            epoch, place = epoch + 1, 0

    def _turns(self, epoch: int, *, seed: int, shuffle: bool) -> NDArray[np.uint16] | None:
        """Return which source gives each row of an epoch; None where there is only one."""
        if len(self.sources) == 1:
            return None
        turns = np.repeat(np.arange(len(self.sources), dtype=np.uint16), self.counts)
        return np.random.default_rng([seed, _SLOTS, epoch]).permutation(turns) if shuffle else turns


@dataclass(frozen=True)
class Mixture:
    """How sources are mixed.

    Attributes:
        lanes: What batches are taken from.
    """

    lanes: tuple[Lane, ...]

    @property
    def num_batches(self) -> int:
        """How many batches an epoch has."""
        return sum(lane.num_batches for lane in self.lanes)

    def turns(self, epoch: int, *, seed: int, shuffle: bool) -> list[int]:
        """Return the lane of each batch of an epoch."""
        turns = np.repeat(np.arange(len(self.lanes)), [lane.num_batches for lane in self.lanes])
        shuffled = np.random.default_rng([seed, _TURNS, epoch]).permutation(turns) if shuffle else turns
        return [int(lane) for lane in shuffled]


def mix(
    num_rows: Sequence[int | None], *, weights: Sequence[float] | None, batch: int, one_source_per_batch: bool
) -> Mixture:
    """Return how sources are mixed.

    Without weights an epoch has every row once, less what does not fill a batch. With weights it has as many rows as
    the sources together, in these shares; a source goes on in the next epoch where it was, and begins again at its
    end. Where a source is a stream, an epoch is 1,024 batches.

    Args:
        num_rows: How many rows each source has; None for a stream.
        weights: The share of each source; None for shares by number of rows, or where a stream is the only source.
        batch: How many rows a batch has.
        one_source_per_batch: Whether a batch has rows of one source only.
    """
    known = [num for num in num_rows if num is not None]
    streamed = len(known) < len(num_rows)
    if weights is None and not streamed:
        counts = known
    else:
        shares = np.array(weights or [1.0]) / sum(weights or [1.0])
        total = _STREAM_EPOCH * batch if streamed else sum(known) // batch * batch or sum(known)
        unit = batch if one_source_per_batch else 1
        counts = [part * unit for part in _parts(total // unit, shares)]
    if one_source_per_batch:
        return Mixture(tuple(Lane((i,), (count,), min(batch, count)) for i, count in enumerate(counts)))
    return Mixture((Lane(tuple(range(len(counts))), tuple(counts), min(batch, sum(counts))),))


def _parts(num: int, shares: NDArray[np.float64]) -> list[int]:
    """Divide a number by shares into parts of at least 1 that add up to it, by the largest remainders."""
    wanted = num * shares
    parts = np.maximum(wanted.astype(np.int64), 1)
    while parts.sum() < num:
        parts[np.argmax(wanted - parts)] += 1
    while parts.sum() > max(num, len(parts)):
        parts[np.argmax(np.where(parts > 1, parts - wanted, -np.inf))] -= 1
    return [int(part) for part in parts]
