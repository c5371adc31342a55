"""Parquet files of records, read in order or a row group at a time."""

import contextlib
import weakref
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from tercet.data.reading.addresses import Place, state_of
from tercet.data.reading.entries import Entry, changed, unreadable
from tercet.errors import InputError


class ParquetFile:
    """A Parquet file; the row group that was read last stays in memory.

    It is closed by `close`, or when nobody has it any more.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing or cannot be read.
    """

    def __init__(self, path: Place) -> None:
        import pyarrow.parquet

        self.path = path
        with self._errors():
            self._stream = path.open("rb")
            self.close = weakref.finalize(self, self._stream.close)
            self._file = pyarrow.parquet.ParquetFile(self._stream)
        self._state = state_of(path, self._stream)
        self.names: tuple[str, ...] = tuple(self._file.schema_arrow.names)
        self._columns: list[str] | None = None
        groups = (self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups))
        self._firsts = np.concatenate([[0], np.cumsum([*groups], dtype=np.int64)])
        self._group: tuple[int, Any] = (-1, None)

    @property
    def blocks(self) -> list[int]:
        """The first place of each row group."""
        return [int(first) for first in self._firsts[:-1]]

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self._firsts[-1])

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """What the schema says besides the columns."""
        return self._file.schema_arrow.metadata or {}

    def batches(self, columns: Collection[str]) -> Iterator[Any]:
        """Yield some rows at a time as Arrow has them, of those of these columns that are there."""
        with self._errors():
            yield from self._file.iter_batches(columns=[name for name in self.names if name in columns])

    @property
    def types(self) -> dict[str, Any]:
        """The Arrow type of each column."""
        return {each.name: each.type for each in self._file.schema_arrow}

    def use(self, columns: Collection[str]) -> None:
        """Read no other columns from now on."""
        self._columns = [name for name in self.names if name in columns]

    def entries(self) -> Iterator[Entry]:
        """Yield what stands in the file, from its start."""
        return self.entries_from(0)

    def entries_from(self, place: int, *, line: int = 0) -> Iterator[Entry]:
        """Yield what stands in the file from a row on; row groups before it are not read."""
        group = max(0, int(np.searchsorted(self._firsts, place, side="right")) - 1)
        number = int(self._firsts[group])
        with self._errors():
            groups = range(group, self._file.num_row_groups)
            for batch in self._file.iter_batches(columns=self._columns, row_groups=groups):
                skipped = min(max(0, place - number), len(batch))
                number += skipped
                for record in batch.slice(skipped).to_pylist():
                    number += 1
                    yield Entry(number, number - 1, record)

    def record_at(self, place: int) -> dict[str, Any]:
        """Return the record of a row."""
        group = int(np.searchsorted(self._firsts, place, side="right")) - 1
        if group != self._group[0]:
            self._group = (-1, None)  # two of them need not be in memory
            with self._errors():
                self._group = (group, self._file.read_row_group(group, columns=self._columns))
        record: dict[str, Any] = self._group[1].slice(place - int(self._firsts[group]), 1).to_pylist()[0]
        return record

    def check_unchanged(self) -> None:
        """Raise InputError if somebody wrote to the file."""
        if state_of(self.path, self._stream) != self._state:
            raise changed(self.path)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise InputError(
                f"{self.path}: is not a Parquet file that can be read ({error}). Write it again."
            ) from error
        except OSError as error:
            raise unreadable(self.path, error) from error
