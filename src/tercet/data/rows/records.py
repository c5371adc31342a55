"""From a record of a file to rows: texts are checked, labels and scores read, fields put in their places."""

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tercet.data.rows.columns import Columns, FileKind, RowKind, UnknownColumns, bind, choose_kind
from tercet.data.rows.kinds import LABELS, LabelledPair, ParallelPair, Row, ScoredPair, Triplet

UNLABELLED = ("-", "-1")
"""Labels that say that annotators did not agree."""

Values = tuple[Any, ...]
"""What stands in the columns of a record, in the order of the fields; `negative`, the last one, may be several."""

_MAX_BOUND = 1000  # different sets of keys in one JSONL file that are remembered


class BadRecord(Exception):
    """A record gives no row; says why, and the fix."""


class RecordReader:
    """Makes rows of the records of one source; the first record decides what the source holds.

    But pairs are triplets from the first one on that has a negative, where it was not said that they are pairs.

    Args:
        wanted: What rows it is to give.
        kind: What the source holds; by its columns where None.
        columns: The columns of fields that aliases do not find.
        labels: What values of the label column stand for, besides their own names.
    """

    def __init__(
        self,
        wanted: RowKind,
        *,
        kind: FileKind | None = None,
        columns: Columns | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.wanted = wanted
        self.kind = kind
        self.columns: dict[str, tuple[str, ...]] = {}
        """The columns of each field, as they are in the first record (or the first with a negative)."""
        self._given, self._is_chosen = columns or {}, kind is None
        self._labels = {**{name: name for name in LABELS}, **(labels or {})}
        self._getters: dict[tuple[str, ...], Callable[[dict[str, Any]], Values]] = {}
        self._make: Callable[..., list[Row]] = self._labelled

    def rows(self, record: dict[str, Any]) -> list[Row]:
        """Return the rows of a record; none of a pair without a label, or, for `nli`, a neutral one.

        Raises:
            UnknownColumns: The columns of the first record are not known.
            BadRecord: The record is of no use.
        """
        names = tuple(record)
        if names not in self._getters:
            self._add_getter(names, self.bind(names))
        return self._make(*self._getters[names](record))

    def bind(self, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Return the columns of each field in records with these columns.

        Raises:
            UnknownColumns: They are the first ones, and are not known.
            BadRecord: They lack what the first ones had.
        """
        if self.kind is None:
            self.kind = choose_kind(names, wanted=self.wanted, given=self._given)
        given = self._given
        if self.kind == "parallel" and self.columns:  # another order of keys does not swap the languages
            given = {field: columns[0] for field, columns in self.columns.items()}
        try:
            bound = bind(self.kind, names, given)
        except UnknownColumns as error:
            if not self.columns:
                raise
            raise BadRecord(str(error)) from error
        if not self.columns:
            self.columns = bound
            self._make = _MAKERS.get((self.wanted, self.kind), self._labelled)
        elif self._is_chosen and self.wanted == "triplets" and self.kind == "pairs":
            with_negatives = bind("triplets", names, given)
            if with_negatives["negative"]:  # only the rows before had none
                self.kind, self.columns = "triplets", with_negatives
                return with_negatives
        return bound

    def _add_getter(self, names: tuple[str, ...], bound: dict[str, tuple[str, ...]]) -> None:
        columns = [column for columns in bound.values() for column in columns]
        if len(self._getters) >= _MAX_BOUND:
            self._getters.clear()
        if len(columns) > 1 and set(columns) <= set(names):
            self._getters[names] = operator.itemgetter(*columns)
        else:
            self._getters[names] = lambda record: tuple(_value(record, column) for column in columns)

    def _labelled(self, premise: Any, hypothesis: Any, label: Any) -> list[Row]:
        value = str(label).strip()
        known = value if value in UNLABELLED else self._labels.get(value, self._labels.get(value.lower()))
        if known is None:
            names = ", ".join(self._labels)
            raise BadRecord(f"the label {value!r} is unknown. Known: {names}. Say in `labels` what it stands for.")
        if known in UNLABELLED or (known == "neutral" and self.wanted == "nli"):
            return []
        return [LabelledPair(_text(premise, "premise"), _text(hypothesis, "hypothesis"), known)]


def _value(record: dict[str, Any], column: str) -> Any:
    """Return what stands in a column; `a.b` is the part `b` of the column `a`."""
    if column in record:
        return record[column]
    value: Any = record
    for part in column.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise BadRecord(f'"{field}" is {"null" if value is None else type(value).__name__}, not text. Write a string.')
    if not value or value.isspace():
        raise BadRecord(f'"{field}" is empty. Fix the row.')
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadRecord(f'"{field}" has half a surrogate pair. Write whole characters.') from error
    return value


def _negatives(values: Values) -> tuple[str, ...]:
    """Return the negatives that are there; a column may have none in some rows, or a list."""
    flat = [part for value in values for part in (value if isinstance(value, list) else (value,))]
    return tuple([_text(value, "negative") for value in flat if value is not None and value != ""])


def _triplet(anchor: Any, positive: Any, *negatives: Any) -> list[Row]:
    return [Triplet(_text(anchor, "anchor"), _text(positive, "positive"), _negatives(negatives) if negatives else ())]


def _twin(text: Any) -> list[Row]:
    return [Triplet(_text(text, "text"), text, twin=True)]


def _neighbours(texts: Any) -> list[Row]:
    """Return each text of a set with the one behind it: every text stands in a row, and few rows share one."""
    if not isinstance(texts, list) or len(texts) < 2:
        raise BadRecord('"texts" is no list of two or more. Fix the row.')
    return [Triplet(a, b) for a, b in itertools.pairwise([_text(text, "texts") for text in texts])]


def _translation(source: Any, target: Any) -> list[Row]:
    return [Triplet(_text(source, "source"), _text(target, "target"))]


def _parallel(source: Any, target: Any) -> list[Row]:
    return [ParallelPair(_text(source, "source"), _text(target, "target"))]


def _scored(a: Any, b: Any, score: Any) -> list[Row]:
    try:
        number = math.nan if isinstance(score, bool) else float(score)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRecord(f'"score" is {score!r}, not a number. Fix the row.')
    return [ScoredPair(_text(a, "a"), _text(b, "b"), number)]


_MAKERS: dict[tuple[RowKind, FileKind], Callable[..., list[Row]]] = {
    ("triplets", "texts"): _twin,
    ("triplets", "pairs"): _triplet,
    ("triplets", "triplets"): _triplet,
    ("nli", "triplets"): _triplet,
    ("nli", "texts"): _twin,
    ("triplets", "sets"): _neighbours,
    ("triplets", "parallel"): _translation,
    ("parallel", "parallel"): _parallel,
    ("parallel", "pairs"): _parallel,
    ("scored", "scored"): _scored,
}
