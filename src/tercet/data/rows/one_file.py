"""The rows of one file, for those who read it without a recipe: evaluation, `embed` and `search`."""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from tercet.data.reading.addresses import Place
from tercet.data.reading.datasets import HubName, HubRecords
from tercet.data.reading.entries import Entry
from tercet.data.reading.formats import format_in, open_file
from tercet.data.reading.lines import LineFile
from tercet.data.reading.parquet import ParquetFile
from tercet.data.reading.tmx import TmxFile
from tercet.data.rows.checks import BadRecord
from tercet.data.rows.columns import UnknownColumns
from tercet.data.rows.kinds import Row
from tercet.data.rows.records import RecordReader
from tercet.errors import RowError

OpenFile = LineFile | ParquetFile | TmxFile | HubRecords


def read_rows(path: Path, reader: RecordReader, *, file_format: str | None = None, fix: str) -> Iterator[Row]:
    """Yield the rows of a file; see `read_entries`."""
    for _, rows in read_entries(path, reader, file_format=file_format, fix=fix):
        yield from rows


def read_entries(
    path: Place | HubName,
    reader: RecordReader,
    *,
    file_format: str | None = None,
    fix: str,
    start: tuple[int, int] | None = None,
    columns: Collection[str] | None = None,
) -> Iterator[tuple[Entry, list[Row]]]:
    """Yield what stands in a file, with its rows.

    Args:
        path: The file.
        reader: Makes rows of its records.
        file_format: A name in FORMATS; by the file's ending where None.
        fix: What to do where a column is not found.
        start: The place and line of the record to begin with; the first where None.
        columns: Which ones are read, where the format lets one choose; all where None.

    Raises:
        InputError: The file is missing or cannot be read.
        RowError: A row is bad; the message says file:line.
    """
    with contextlib.closing(open_place(path, file_format)) as file:
        if columns is not None:
            file.use(columns)
        names, first = file.names, 1
        try:
            if names is not None:  # they stand in another order in some records of a TMX
                reader.bind(names)
            for entry in file.entries() if start is None else file.entries_from(start[0], line=start[1]):
                first = entry.line
                if entry.record is None:
                    raise BadRecord(entry.problem)
                yield entry, reader.rows(entry.record)
        except UnknownColumns as error:
            raise RowError(f"{path}:{first}: {error.problem} {fix}") from error
        except BadRecord as error:
            raise RowError(f"{path}:{first}: {error}") from error


def open_place(path: Place | HubName, file_format: str | None) -> OpenFile:
    """Open a file, or a dataset of the hub, to read its records."""
    return HubRecords(path) if isinstance(path, HubName) else open_file(path, file_format or format_in(path))
