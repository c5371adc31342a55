"""What a report is made of, before it is written as HTML or Markdown."""

import re
from dataclasses import dataclass, field
from typing import Literal

TITLE = "Tercet report"
"""Stands near the start of every file of a report, which is known by it."""

NOTHING = "\u2013"
"""What a cell without a figure shows: a dash."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str = NOTHING
    best: bool = False
    """Whether it is the best of its column, and printed in bold."""
    under: str = ""
    """A second, smaller line."""
    sign: int = 0
    """Of a difference: 1 is better, -1 is worse."""
    tag: str = ""
    """A word that marks it."""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    cells: tuple[Cell, ...]
    kind: Literal["plain", "ours", "difference"] = "plain"


@dataclass(frozen=True)
class Table:
    """A table; its first columns are text, the others figures."""

    header: tuple[Cell, ...]
    rows: tuple[Row, ...]
    num_text: int = 1
    """How many of the first columns are text."""


@dataclass(frozen=True)
class Heading:
    """A heading; levels 2 and 3 are in the table of contents."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Terms, each with one line of text or more."""

    items: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Items:
    """A list of lines."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Chart:
    """One drawing: an SVG element."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Figure:
    """Drawings that belong together, with what they show."""

    title: str
    caption: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Verdict:
    """What it comes to, in a box."""

    headline: str
    reason: str
    sign: int = 0
    """1 is good, -1 is bad."""


@dataclass(frozen=True)
class Bar:
    """A line of a drawing whose texts stand beside it."""

    svg: str
    label: str = ""
    under: str = ""
    value: str = ""
    value_under: str = ""
    sign: int = 0
    """Of the value: 1 is better, -1 is worse."""


@dataclass(frozen=True)
class Bars:
    """Bars below one another, and a table that says the same where nothing can be drawn."""

    bars: tuple[Bar, ...]
    table: Table


@dataclass(frozen=True)
class Panels:
    """Drawings side by side in the colours of the page, and a table that says the same where nothing can be drawn."""

    charts: tuple[Chart, ...]
    table: Table
    legend: tuple[tuple[str, str], ...] = ()
    """A class of the style sheet and what has its colour."""


@dataclass(frozen=True)
class Columns:
    """Blocks that stand side by side where there is room."""

    columns: tuple[tuple["Block", ...], ...]


@dataclass(frozen=True)
class Details:
    """Blocks that are folded away."""

    summary: str
    blocks: tuple["Block", ...]


Block = Heading | Text | Facts | Items | Table | Figure | Verdict | Bars | Panels | Columns | Details


@dataclass(frozen=True)
class Document:
    """A title and what is below it."""

    title: str
    blocks: list[Block] = field(default_factory=list)


def one_line(text: str) -> str:
    """Return a text without line breaks and without characters that a terminal or XML would choke on."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def slug(text: str) -> str:
    """Return a text as an anchor or a file name: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
