"""Two line-aligned files, as Moses and OPUS have them: line n of the one is the translation of line n of the other."""

import itertools
from array import array
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tercet.data.reading.entries import Entry, changed
from tercet.data.reading.lines import LINE_COLUMN, LineFile
from tercet.errors import InputError

_STRIDE = 32
"""Of every so many lines one place is kept; a line is found by reading on from there."""


class AlignedFiles:
    """Two files of plain lines as records with `source` and `target`. The place of a record is its number from 0.

    Args:
        source: The one file.
        target: The other.

    Raises:
        InputError: A file is missing or cannot be read.
    """

    names: tuple[str, ...] = ("source", "target")
    blocks: list[int] | None = None

    def __init__(self, source: Path, target: Path) -> None:
        self._files = LineFile(source, "lines"), LineFile(target, "lines")
        self._places = array("q"), array("q")

    def use(self, columns: Collection[str]) -> None:
        """Do nothing: both lines are needed."""

    def close(self) -> None:
        """Close both files."""
        for file in self._files:
            file.close()

    def entries(self) -> Iterator[Entry]:
        """Yield pairs of lines, from the start.

        Raises:
            InputError: One file has more lines than the other.
        """
        self._places = array("q"), array("q")
        pairs = itertools.zip_longest(*(file.entries() for file in self._files))
        for number, (source, target) in enumerate(pairs):
            if source is None or target is None:
                longer = number + 1 + sum(1 for _ in pairs)
                raise self._uneven(*((number, longer) if source is None else (longer, number)))
            if number % _STRIDE == 0:
                self._places[0].append(source.place)
                self._places[1].append(target.place)
            yield _joined(number, source, target)

    def record_at(self, place: int) -> dict[str, Any]:
        """Return the record with a number.

        Raises:
            InputError: There is none: the files are not as they were.
        """
        block, number = divmod(place, _STRIDE)
        record = {}
        for name, file, places in zip(self.names, self._files, self._places, strict=True):
            entry = next(itertools.islice(file.entries_from(places[block]), number, None), None)
            if entry is None or entry.record is None:
                raise changed(file.path)
            record[name] = entry.record[LINE_COLUMN]
        return record

    def check_unchanged(self) -> None:
        """Raise InputError if somebody wrote to a file."""
        for file in self._files:
            file.check_unchanged()

    def _uneven(self, num_sources: int, num_targets: int) -> InputError:
        source, target = (file.path for file in self._files)
        return InputError(
            f"{source} and {target}: have {num_sources:,} and {num_targets:,} lines, so that lines are no translations "
            "of one another. Get both files of one release."
        )


def _joined(number: int, source: Entry, target: Entry) -> Entry:
    line, raw = number + 1, source.raw.rstrip(b"\r\n") + b"\t" + target.raw
    for name, entry in (("source", source), ("target", target)):
        if entry.record is None:
            return Entry(line, number, None, f"{name}: {entry.problem}", raw)
    texts = (entry.record[LINE_COLUMN] for entry in (source, target) if entry.record is not None)
    return Entry(line, number, dict(zip(AlignedFiles.names, texts, strict=True)), "", raw)
