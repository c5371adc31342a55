"""The gate that every row passes: bad rows end everything, or are counted, told of in a file, and left out."""

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from pathlib import Path
from typing import Any

from tercet.data.reading.entries import Entry
from tercet.data.rows.checks import BadRecord
from tercet.data.rows.clean import Cleaner
from tercet.data.rows.columns import UnknownColumns
from tercet.data.rows.kinds import ParallelPair, Row, texts_of
from tercet.data.rows.records import RecordReader
from tercet.data.rows.settings import RowSettings
from tercet.data.rows.share import Share, is_in_share
from tercet.data.rows.words import is_any_known
from tercet.errors import InputError, RowError
from tercet.storage.documents import parse_json
from tercet.storage.files import append_to, atomic_write, target_errors

Reject = dict[str, Any]
"""file, line, reason, raw."""

_LEFT_OUT, _LEAK = "num_left_out_by_", "leak"


class Gate:
    """Lets the good rows of one source through, and counts all.

    Args:
        name: The source, as messages name it.
        reader: Makes rows of its records.
        settings: What happens to bad rows.
        share: Which of the good ones are let through: a part of them, or from where to where.
        clean: Says which parallel pairs are left out; None for none.
        known: Evaluation texts, as words: rows with one of them are left out.
    """

    def __init__(
        self,
        name: str,
        reader: RecordReader,
        settings: RowSettings,
        *,
        share: Share = 1.0,
        clean: Cleaner | None = None,
        known: Set[str] = frozenset(),
    ) -> None:
        self.name = name
        self.reader = reader
        self.counts = {"num_read": 0, "num_bad": 0, "num_unlabelled": 0, "num_rows": 0}
        if share != 1:
            self.counts["num_not_chosen"] = 0
        self._share = share
        self._clean, self._known = clean, known
        rules = [*(clean.names if clean else ()), *((_LEAK,) if known else ())]
        self.counts |= {_LEFT_OUT + rule: 0 for rule in rules}
        self._skip = settings.on_error == "skip"
        self._max_bad_fraction = settings.max_bad_fraction
        self._last_place = -1

    def rows(self, entries: Iterable[Entry], reject: Callable[[Reject], None]) -> Iterator[tuple[Entry, list[Row]]]:
        """Yield the entries that give rows. What is read a second time is not counted again.

        Raises:
            RowError: A row is bad and is not to be skipped, or the columns are not known; the message says file:line.
        """
        for entry in entries:
            try:
                if entry.record is None:
                    raise BadRecord(entry.problem)
                found, problem = self.reader.rows(entry.record), ""
            except BadRecord as error:
                found, problem = [], str(error)
            except UnknownColumns as error:
                raise RowError(f"{self.name}:{entry.line}: {error}") from error
            if problem and not self._skip:
                raise RowError(f"{self.name}:{entry.line}: {problem} Or leave such rows out: on_error: skip.")
            chosen = self._share == 1 or not found or is_in_share(found[0], self._share)
            rule = self._rule(found) if chosen else None  # what a share leaves out is no earlier pair either
            found = [] if rule else found
            if entry.place > self._last_place:  # several units of a TMX may be on one line
                self._last_place = entry.place
                self._count(found, problem, rule, chosen)
                if problem:
                    reject({"file": self.name, "line": entry.line, "reason": problem, "raw": _raw(entry)})
            if found and chosen:
                yield entry, found

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows each rule left out, of those that did."""
        named = ((key.removeprefix(_LEFT_OUT), num) for key, num in self.counts.items() if key.startswith(_LEFT_OUT))
        return {rule: num for rule, num in named if num}

    def check_fraction(self) -> None:
        """Raise InputError if too many rows are bad."""
        num_bad, num_read = self.counts["num_bad"], self.counts["num_read"]
        if num_bad > self._max_bad_fraction * num_read:
            raise InputError(
                f"{self.name}: {num_bad:,} of {num_read:,} rows are bad, more than max_bad_fraction "
                f"{self._max_bad_fraction} allows. Fix the file, or see `rejects` for the reasons."
            )

    def _rule(self, found: list[Row]) -> str | None:
        """Return the rule that leaves a record out, if any does."""
        rule = self._clean(found[0]) if self._clean and found and isinstance(found[0], ParallelPair) else None
        if rule is None and self._known and any(is_any_known(texts_of(row), self._known) for row in found):
            return _LEAK
        return rule

    def _count(self, found: list[Row], problem: str, rule: str | None, chosen: bool) -> None:
        self.counts["num_read"] += 1
        self.counts["num_rows" if chosen else "num_not_chosen"] += len(found)
        self.counts["num_bad"] += bool(problem)
        if rule:
            self.counts[_LEFT_OUT + rule] += 1
        else:
            self.counts["num_unlabelled"] += not (found or problem)


class RejectFile:
    """The file that tells about rows that were left out.

    Args:
        path: The file; None for none.
        streamed: Names of sources that are read while training goes on: what an earlier process wrote of them stays.
    """

    def __init__(self, path: Path | None, *, streamed: Collection[str] = ()) -> None:
        self._path = path
        self._kept = [reject for reject in _read(path) if reject.get("file") in streamed] if path else []
        self._told = {(reject["file"], reject["line"]) for reject in self._kept}

    @contextlib.contextmanager
    def writing(self) -> Iterator[Callable[[Reject], None]]:
        """Yield the function that adds a reject; the file is there, whole, when the block ends well."""
        if self._path is None:
            yield lambda _reject: None
            return
        with target_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._path, "w") as stream:

            def add(reject: Reject) -> None:
                stream.write(_line(reject))

            for reject in self._kept:
                add(reject)
            yield add

    def append(self, reject: Reject) -> None:
        """Add a reject to the file, once."""
        place = (reject["file"], reject["line"])
        if self._path is None or place in self._told:
            return
        self._told.add(place)
        with append_to(self._path) as stream:
            stream.write(_line(reject))


def _line(reject: Reject) -> str:
    text = json.dumps(reject, ensure_ascii=False) + "\n"
    return text.encode(errors="replace").decode()  # halves of surrogate pairs cannot be written


def _raw(entry: Entry) -> str:
    if entry.raw:
        return entry.raw.rstrip(b"\r\n").decode(errors="replace")
    return json.dumps(entry.record, ensure_ascii=True, default=str)


def _read(path: Path) -> Iterator[Reject]:
    """Yield the rejects in a file; the last line may be torn."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        with contextlib.suppress(ValueError):
            reject = parse_json(line)
            if isinstance(reject, dict) and reject.keys() >= {"file", "line"}:
                yield reject
