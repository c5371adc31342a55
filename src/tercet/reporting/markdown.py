"""A report as Markdown, with its drawings as SVG files in a folder beside it."""

import re
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote

from tercet.reporting.document import (
    TITLE,
    Bars,
    Block,
    Cell,
    Chart,
    Columns,
    Details,
    Document,
    Facts,
    Figure,
    Heading,
    Items,
    Panels,
    Row,
    Table,
    Text,
    Verdict,
    one_line,
)

_MARK = {"plain": "", "ours": "\u25b6 ", "difference": ""}
_PROLOG = f'<?xml version="1.0" encoding="utf-8"?>\n<!-- {TITLE} -->\n'


def to_markdown(document: Document, folder: str) -> str:
    """Return a report as Markdown.

    Args:
        document: The report.
        folder: The name of the folder, beside the report, that holds the drawings.
    """
    blocks = [f"# {_text(document.title)}", *(_block(block, folder) for block in document.blocks)]
    return "\n\n".join(blocks) + "\n"


def chart_files(document: Document, folder: Path) -> dict[Path, str]:
    """Return the drawings of a report as SVG files in a folder."""
    return {folder / f"{chart.name}.svg": f"{_PROLOG}{chart.svg}\n" for chart in _charts(document)}


def _charts(document: Document) -> Iterator[Chart]:
    for block in document.blocks:
        if isinstance(block, Figure):
            yield from block.charts


def _block(block: Block, folder: str) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_text(block.text)}"
        case Text():
            return _text(block.text)
        case Facts():
            return "\n".join(_fact(term, lines) for term, lines in block.items)
        case Items():
            return "\n".join(f"- {_text(line)}" for line in block.lines)
        case Table() | Bars() | Panels():
            return _table(block if isinstance(block, Table) else block.table)
        case Figure():
            return _figure(block, folder)
        case Verdict():
            return f"**{_text(block.headline)}** {_text(block.reason)}"
        case Columns():
            return _below_one_another((inside for column in block.columns for inside in column), folder)
        case Details():
            inner = _below_one_another(block.blocks, folder)
            return f"<details><summary>{escape(one_line(block.summary))}</summary>\n\n{inner}\n\n</details>"


def _below_one_another(blocks: Iterable[Block], folder: str) -> str:
    return "\n\n".join(_block(block, folder) for block in blocks)


def _figure(figure: Figure, folder: str) -> str:
    images = " ".join(f"![{_text(chart.title)}]({quote(folder)}/{chart.name}.svg)" for chart in figure.charts)
    return f"{images}\n\n**{_text(figure.title)}.** {_text(figure.caption)}"


def _fact(term: str, lines: tuple[str, ...]) -> str:
    if len(lines) == 1:
        return f"- {_text(term)}: {_text(lines[0])}"
    return "\n".join([f"- {_text(term)}:", *(f"  - {_text(line)}" for line in lines)])


def _table(table: Table) -> str:
    rule = ["---" if i < table.num_text else "---:" for i in range(len(table.header))]
    rows = [_line([_inside(cell) for cell in table.header]), _line(rule), *map(_row, table.rows)]
    return "\n".join(rows)


def _row(row: Row) -> str:
    cells = [_inside(cell) for cell in row.cells]
    if row.kind == "difference":
        cells = [f"*{cell}*" if cell else "" for cell in cells]
    return _line([_MARK[row.kind] + cells[0], *cells[1:]])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _inside(cell: Cell) -> str:
    text = _text(cell.text)
    text = f"**{text}**" if cell.best else text
    notes = ", ".join(_text(note) for note in (cell.under, cell.tag) if note)
    return f"{text} ({notes})" if notes else text


def _text(text: str) -> str:
    """Escape what Markdown, or HTML inside of it, would read as markup."""
    return re.sub(r"([\\`*_\[\]|~$#])", r"\\\1", escape(one_line(text), quote=False))
