"""Columns that go with the texts into a file of vectors: which ones, and of which type in Parquet."""

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from tercet.data.reading.addresses import Place
from tercet.data.reading.datasets import HubName
from tercet.data.reading.parquet import ParquetFile
from tercet.data.rows.one_file import open_place
from tercet.errors import InputError, SettingError

ALL = "all"
"""Stands for every column but that of the text."""

TAKEN = ("text", "embedding", "scale")
"""What columns are called that are written in any case."""

_STRING, _JSON = "string", "json"
_BY_TYPE: dict[type, str] = {bool: "bool_", int: "int64", float: "float64", str: _STRING}
_BY_ARROW = {"bool": "bool_", "int64": "int64", "double": "float64", "string": _STRING, "large_string": _STRING}
_LONG = 2**63


@dataclass(frozen=True)
class Kept:
    """The columns that are kept of some files."""

    types: Mapping[str, Any] = field(default_factory=dict)
    """The Arrow type of each; None where values are lists or objects, which are kept as JSON."""

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called, in their order."""
        return tuple(self.types)

    def array(self, name: str, values: Sequence[Any]) -> Any:
        """Return the values of a column as Arrow has them."""
        import pyarrow as pa

        kind = self.types[name]
        if kind is None or kind == pa.string():
            plain = (str, type(None)) if kind is not None else type(None)
            values = [each if isinstance(each, plain) else as_json(each) for each in values]
        return pa.array(values, kind or pa.string())


def kept_columns(files: Iterable[tuple[Place | HubName, str, str]], wanted: Sequence[str]) -> Kept:
    """Return which columns are kept of files; their types are found by reading all of them.

    Args:
        files: Each one with its format and the column of its texts.
        wanted: The names of columns, or `all`.

    Raises:
        InputError: A file has no such column, or one has a name that is taken.
    """
    import pyarrow as pa

    if not wanted:
        return Kept()
    joined: dict[str, set[Any]] = {} if ALL in wanted else {name: set() for name in wanted}
    for path, file_format, text in files:
        found = _types_in(path, file_format)
        missing = [name for name in wanted if name not in found and name != ALL]
        if missing:
            raise InputError(f"{path}: has no column {missing[0]!r} to keep. It has: {', '.join(found) or 'none'}.")
        for name in found if ALL in wanted else wanted:
            if name != text:
                joined.setdefault(name, set()).update(found[name])
            elif ALL not in wanted:
                raise SettingError(
                    f"keep {name!r}: is the column of the texts, which is written as 'text' in any case."
                )
    for name in joined:
        if name in TAKEN:
            raise InputError(f"the column {name!r} cannot be kept: the file of vectors has its own. Rename it.")
    types = {name: _join(kinds) for name, kinds in joined.items()}
    return Kept({name: getattr(pa, kind)() if isinstance(kind, str) else kind for name, kind in types.items()})


def as_json(value: Any) -> str:
    """Return a value as JSON; what JSON does not have, such as a time, as text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _types_in(path: Place | HubName, file_format: str) -> dict[str, set[Any]]:
    """Return the types of each column's values in a file: of Arrow, or by name."""
    with contextlib.closing(open_place(path, file_format)) as file:
        if isinstance(file, ParquetFile):
            return {name: {_BY_ARROW.get(str(kind), kind)} for name, kind in file.types.items()}
        if file_format in ("lines", "csv", "tsv"):  # a table has the same columns in all rows, and all are text
            return {name: {_STRING} for entry in islice(file.entries(), 1) for name in entry.record or {}}
        found: dict[str, set[Any]] = {}
        for entry in file.entries():
            for name, value in (entry.record or {}).items():
                kinds = found.setdefault(name, set())
                if value is not None:
                    kinds.add(_type_of(value))
        return found


def _type_of(value: object) -> str:
    kind = _BY_TYPE.get(type(value), _JSON)
    return _JSON if kind == "int64" and isinstance(value, int) and not -_LONG <= value < _LONG else kind


def _join(kinds: set[Any]) -> Any:
    """Return the one type that holds values of several; None where that is JSON."""
    if len(kinds) == 1 and _JSON not in kinds:
        return next(iter(kinds))
    if kinds == {"int64", "float64"}:
        return "float64"
    return _STRING if kinds <= {*_BY_TYPE.values()} else None
