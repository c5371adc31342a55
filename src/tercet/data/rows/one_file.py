"""The rows of one file, for those who read it without a recipe: evaluation, `embed` and `search`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tercet.data.reading.formats import format_in, open_file
from tercet.data.rows.checks import BadRecord
from tercet.data.rows.columns import UnknownColumns
from tercet.data.rows.kinds import Row
from tercet.data.rows.records import RecordReader
from tercet.errors import RowError


def read_rows(path: Path, reader: RecordReader, *, file_format: str | None = None, fix: str) -> Iterator[Row]:
    """Yield the rows of a file.

    Args:
        path: The file.
        reader: Makes rows of its records.
        file_format: A name in FORMATS; by the file's ending where None.
        fix: What to do where a column is not found.

    Raises:
        InputError: The file is missing or cannot be read.
        RowError: A row is bad; the message says file:line.
    """
    with contextlib.closing(open_file(path, file_format or format_in(path))) as file:
        names, first = file.names, 1
        try:
            if names is not None:  # they stand in another order in some records of a TMX
                reader.bind(names)
            for entry in file.entries():
                first = entry.line
                if entry.record is None:
                    raise BadRecord(entry.problem)
                yield from reader.rows(entry.record)
        except UnknownColumns as error:
            raise RowError(f"{path}:{first}: {error.problem} {fix}") from error
        except BadRecord as error:
            raise RowError(f"{path}:{first}: {error}") from error
