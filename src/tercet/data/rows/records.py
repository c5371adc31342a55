"""From a record of a file to rows: texts are checked, labels and scores read, fields put in their places.

Training, evaluation, `embed` and `search` all read files by the one reader here, so that a file means the same to all.
"""

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tercet.data.rows.checks import BadField, BadRecord, Check, any_text, full_text, number, verdict
from tercet.data.rows.columns import Columns, FileKind, RowKind, UnknownColumns, bind, choose_kind
from tercet.data.rows.kinds import (
    LABELS,
    TITLE,
    ClassText,
    NliPair,
    ParallelPair,
    ParaphrasePair,
    RankedPair,
    Row,
    ScoredPair,
    Text,
    Triplet,
)

UNLABELLED = ("-", "-1")
"""Labels that say that annotators did not agree."""

Values = tuple[Any, ...]
"""What stands in the columns of a record, in the order of the fields; `negative`, the last one, may be several."""

_MAX_BOUND = 1000  # different sets of keys in one JSONL file that are remembered


class RecordReader:
    """Makes rows of the records of one source; the first record decides what the source holds.

    But pairs are triplets from the first one on that has a negative, where it was not said that they are pairs.

    Args:
        wanted: What rows it is to give.
        kind: What the source holds; by its columns where None.
        columns: The columns of fields that aliases do not find.
        labels: What values of an NLI file's label column stand for, besides their own names.
        empty: Whether a text may be empty: it has a vector, but nothing can be learned from it.
    """

    def __init__(
        self,
        wanted: RowKind,
        *,
        kind: FileKind | None = None,
        columns: Columns | None = None,
        labels: Mapping[str, str] | None = None,
        empty: bool = False,
    ) -> None:
        self.wanted = wanted
        self.kind = kind
        self.columns: dict[str, tuple[str, ...]] = {}
        """The columns of each field, as they are in the first record (or the first with a negative)."""
        self._given, self._is_chosen = columns or {}, kind is None
        self._labels = {**{name: name for name in LABELS}, **(labels or {})}
        self._text: Check = any_text if empty else full_text
        self._getters: dict[tuple[str, ...], Callable[[dict[str, Any]], Values]] = {}
        self._make: Callable[..., list[Row]] = self._nli

    def rows(self, record: dict[str, Any]) -> list[Row]:
        """Return the rows of a record; none of an NLI pair without a label, or, for `inference`, a neutral one.

        Raises:
            UnknownColumns: The columns of the first record are not known.
            BadRecord: The record is of no use; the message names the column.
        """
        names = tuple(record)
        if names not in self._getters:
            self._add_getter(names, self.bind(names))
        try:
            return self._make(*self._getters[names](record))
        except BadField as error:
            columns = self.bind(names).get(error.field, ())
            column = columns[0] if len(columns) == 1 else error.field
            raise BadRecord(f"{column!r} {error.problem}") from error

    def bind(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the columns of each field in records with these columns.

        Raises:
            UnknownColumns: They are the first ones, and are not known.
            BadRecord: They lack what the first ones had.
        """
        if self.kind is None:
            self.kind = choose_kind(names, wanted=self.wanted, given=self._given)
        given = self._given
        if self.kind in ("parallel", "texts") and self.columns:  # other keys do not swap the languages or the text
            given = {field: columns[0] for field, columns in self.columns.items()}
        try:
            bound = bind(self.kind, names, given)
        except UnknownColumns as error:
            if not self.columns:
                raise
            raise BadRecord(f"{error.problem} Fix the row.") from error
        if not self.columns:
            self.columns = bound
            maker = _MAKERS.get((self.wanted, self.kind))
            self._make = partial(maker, self._text) if maker else self._nli
        elif self._is_chosen and self.wanted in ("texts", "triplets") and self.kind == "pairs":
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
        elif len(columns) == 1 and columns[0] in names:
            (only,) = columns
            self._getters[names] = lambda record: (record[only],)
        else:
            self._getters[names] = lambda record: tuple(_value(record, column) for column in columns)

    def _nli(self, premise: Any, hypothesis: Any, label: Any) -> list[Row]:
        value = str(label).strip()
        known = value if value in UNLABELLED else self._labels.get(value, self._labels.get(value.lower()))
        if known is None:
            names = ", ".join(self._labels)
            raise BadRecord(f"the label {value!r} is unknown. Known: {names}. Say in `labels` what it stands for.")
        if known in UNLABELLED or (known == "neutral" and self.wanted == "inference"):
            return []
        return [NliPair(self._text(premise, "premise"), self._text(hypothesis, "hypothesis"), known)]


def _value(record: dict[str, Any], column: str) -> Any:
    """Return what stands in a column; `a.b` is the part `b` of the column `a`."""
    if column in record:
        return record[column]
    value: Any = record
    for part in column.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _negatives(text: Check, values: Values) -> tuple[str, ...]:
    """Return the negatives that are there; a column may have none in some rows, or a list."""
    flat = [part for value in values for part in (value if isinstance(value, list) else (value,))]
    return tuple([text(value, "negative") for value in flat if value is not None and value != ""])


def _triplet(text: Check, anchor: Any, positive: Any, *negatives: Any) -> list[Row]:
    given = _negatives(text, negatives) if negatives else ()
    return [Triplet(text(anchor, "anchor"), text(positive, "positive"), given)]


def _title(text: Check, anchor: Any, positive: Any) -> list[Row]:
    return [NliPair(text(positive, "positive"), text(anchor, "anchor"), TITLE)]


def _plain(text: Check, value: Any, _label: Any = None) -> list[Row]:
    return [Text(text(value, "text"))]


def _neighbours(text: Check, texts: Any) -> list[Row]:
    """Return each text of a set with the one after it: every text stands in a row, and few rows share one."""
    if not isinstance(texts, list) or len(texts) < 2:
        raise BadField("texts", "is no list of two or more. Fix the row.")
    return [Triplet(a, b) for a, b in itertools.pairwise([text(each, "texts") for each in texts])]


def _translation(text: Check, source: Any, target: Any) -> list[Row]:
    return [Triplet(text(source, "source"), text(target, "target"))]


def _parallel(text: Check, source: Any, target: Any) -> list[Row]:
    return [ParallelPair(text(source, "source"), text(target, "target"))]


def _parallel_pair(text: Check, anchor: Any, positive: Any) -> list[Row]:
    return [ParallelPair(text(anchor, "anchor"), text(positive, "positive"))]


def _scored(text: Check, a: Any, b: Any, score: Any) -> list[Row]:
    return [ScoredPair(text(a, "a"), text(b, "b"), number(score, "score"))]


def _paraphrase(text: Check, a: Any, b: Any, label: Any) -> list[Row]:
    return [ParaphrasePair(text(a, "a"), text(b, "b"), verdict(label, "label"))]


def _rerank(text: Check, query: Any, candidate: Any, label: Any) -> list[Row]:
    return [RankedPair(text(query, "query"), text(candidate, "candidate"), verdict(label, "label"))]


def _class(text: Check, value: Any, label: Any) -> list[Row]:
    name = label if label is None or isinstance(label, list | dict) else str(label)
    return [ClassText(text(value, "text"), full_text(name, "label"))]


def _as_nli(maker: Callable[..., list[Row]], text: Check, first: Any, second: Any, label: Any) -> list[Row]:
    """Return a pair with a verdict as one that is grouped to triplets: what is right is a positive."""
    maker(text, first, second, label)
    return [NliPair(first, second, "entailment" if verdict(label, "label") else "contradiction")]


_MAKERS: dict[tuple[RowKind, FileKind], Callable[..., list[Row]]] = {
    ("texts", "texts"): _plain,
    ("texts", "classes"): _plain,
    ("texts", "pairs"): _triplet,
    ("texts", "triplets"): _triplet,
    ("texts", "sets"): _neighbours,
    ("texts", "parallel"): _translation,
    ("texts", "scored"): _scored,
    ("texts", "paraphrase"): _paraphrase,
    ("texts", "rerank"): _rerank,
    ("triplets", "texts"): _plain,
    ("triplets", "classes"): _plain,
    ("triplets", "pairs"): _triplet,
    ("triplets", "triplets"): _triplet,
    ("triplets", "sets"): _neighbours,
    ("triplets", "parallel"): _translation,
    ("triplets", "paraphrase"): partial(_as_nli, _paraphrase),
    ("triplets", "rerank"): partial(_as_nli, _rerank),
    ("inference", "triplets"): _triplet,
    ("inference", "texts"): _plain,
    ("inference", "titles"): _title,
    ("parallel", "parallel"): _parallel,
    ("parallel", "pairs"): _parallel_pair,
    ("scored", "scored"): _scored,
    ("paraphrase", "paraphrase"): _paraphrase,
    ("rerank", "rerank"): _rerank,
    ("classes", "classes"): _class,
}
"""How each kind of file gives each kind of row; an NLI file's pairs are always read by their labels."""
