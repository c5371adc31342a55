"""The result tables of the three papers, as printed, each cell with its source.

    for cell in find("STSB"):
        print(cell.source, cell.row, cell.details, cell.printed)

One YAML file a paper. A table's `rows` are lines `label | detail | ... | cell cell cell`, in the order of its `details`
and `columns`. Columns carry Tercet's task names, mapped to the printed headings; a column of averages starts with
`avg` and `averages` says over which group. A dash is a cell that the paper leaves open. `mismatches` lists, by row
number, what the cells give where the printed average says otherwise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from tercet.data.sets.groups import GROUPS

__all__ = ["AVERAGES", "Cell", "Row", "Table", "find", "load_tables"]

AVERAGES: Mapping[str, tuple[str, ...]] = {
    **{group: GROUPS[group] for group in ("sts", "transfer", "sentglue", "domain")},
    "twitter": ("TwitterURL", "PIT"),
}
"""The tasks that the papers' averages are over."""

_FILES = ("sentence-t5.yaml", "gense.yaml", "parallel-translation.yaml")
_SUFFIXES = {"T": 1e3, "M": 1e6, "B": 1e9}  # T as the parallel paper uses it: a thousand


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One printed figure."""

    paper: str
    table: str
    """The place in the paper: `Table 3`, `Appendix A`."""
    row: str
    """The row's label: the model's name as printed."""
    details: Mapping[str, str]
    """What else the row says of the model, as printed: `{"fine-tune data": "NLI"}`."""
    column: str
    """A Tercet task name, an average (`avg`, `avg-sts`), or a quantity (`gpu_hours`)."""
    group: str | None
    """The group of tasks that an average is over; None in other columns."""
    value: float | None
    """The figure; None where the paper prints a dash."""
    printed: str
    """The figure's text, with the paper's number of decimals."""
    source: str
    """Where to look it up: `Sentence-T5, Table 3`."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One printed row; its cells are in the order of the table's columns."""

    label: str
    details: Mapping[str, str]
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        return {cell.column: cell for cell in self.cells}[column]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One printed table, or figures that a paper tells in its text."""

    paper: str
    title: str
    """The paper's full title."""
    table: str
    part: str | None
    """Which half, where one printed table holds two."""
    source: str
    caption: str
    metric: str
    protocol: str
    columns: Mapping[str, str]
    """Our name of each column -> the printed heading."""
    averages: Mapping[str, str]
    """Each column that is an average -> the group it is over."""
    mismatches: Mapping[int, Mapping[str, float]]
    """Row number, from 1 -> column -> the mean of the row's cells, where the printed average is another."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    """What is odd about the table, the mismatches included."""


@cache
def load_tables() -> tuple[Table, ...]:
    """Return all tables, paper by paper; the files are read once."""
    return tuple(table for name in _FILES for table in _read(name))


def find(name: str) -> list[Cell]:
    """Return the printed figures of a task or column, or, for a group (`sts`), of the averages over it.

    Cells with a dash are left out. A name of which the papers print nothing gives an empty list.
    """
    cells = (cell for table in load_tables() for row in table.rows for cell in row.cells)
    return [cell for cell in cells if name in (cell.column, cell.group) and cell.value is not None]


def _read(name: str) -> Iterator[Table]:
    content = yaml.safe_load(files(__name__).joinpath(name).read_text(encoding="utf-8"))
    for entry in content["tables"]:
        yield _table(content["paper"], content["title"], entry)


def _table(paper: str, title: str, entry: dict[str, Any]) -> Table:
    part = entry.get("part")
    source = f"{paper}, {entry['table']}" + (f" ({part})" if part else "")
    rows = tuple(_row(line, paper, source, entry) for line in entry["rows"].splitlines())
    mismatches = entry.get("mismatches", {})
    return Table(
        paper=paper,
        title=title,
        table=entry["table"],
        part=part,
        source=source,
        caption=entry["caption"],
        metric=entry["metric"],
        protocol=entry["protocol"],
        columns=entry["columns"],
        averages=entry.get("averages", {}),
        mismatches=mismatches,
        rows=rows,
        notes=(*entry.get("notes", ()), *_mismatch_notes(rows, mismatches)),
    )


def _row(line: str, paper: str, source: str, entry: dict[str, Any]) -> Row:
    label, *given, figures = (field.strip() for field in line.split("|"))
    details = {name: text for name, text in zip(entry.get("details", ()), given, strict=True) if text}
    cells = tuple(
        Cell(
            paper=paper,
            table=entry["table"],
            row=label,
            details=details,
            column=column,
            group=entry.get("averages", {}).get(column),
            value=_number(printed),
            printed=printed,
            source=source,
        )
        for column, printed in zip(entry["columns"], figures.split(), strict=True)
    )
    return Row(label=label, details=details, cells=cells)


def _number(printed: str) -> float | None:
    if printed == "-":
        return None
    if printed[-1] in _SUFFIXES:
        return float(printed[:-1]) * _SUFFIXES[printed[-1]]
    return float(printed)


def _mismatch_notes(rows: tuple[Row, ...], mismatches: Mapping[int, Mapping[str, float]]) -> Iterator[str]:
    for number, means in mismatches.items():
        row = rows[number - 1]
        for column, mean in means.items():
            yield f"Row {number}, {row.label}: {column} is printed as {row[column].printed}; its cells give {mean:.2f}."
