"""A report as one HTML file: no script, nothing fetched, light and dark."""

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from itertools import takewhile

from tercet.reporting.document import (
    Bar,
    Bars,
    Block,
    Cell,
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
    slug,
)

# Nothing in a report may run or be fetched, whatever a results file says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_LONG_HEADING, _LONG_TEXT = 16, 26  # letters; what is longer is wrapped


def to_html(document: Document) -> str:
    """Return a report as HTML."""
    style = files("tercet.reporting").joinpath("style.css").read_text(encoding="utf-8")
    lead = list(takewhile(lambda block: not isinstance(block, Heading), document.blocks))
    body = document.blocks[len(lead) :]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{_text(document.title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{_text(document.title)}</h1>
{_blocks(lead)}
{_contents(document)}
</header>
<main>
{_blocks(body)}
</main>
</body>
</html>
"""


def _contents(document: Document) -> str:
    """Return links to the sections, and below them to the published tables, paper by paper."""
    headings = [block for block in document.blocks if isinstance(block, Heading)]
    papers: dict[str, list[str]] = {}
    for heading in headings:
        if heading.level == 3:
            paper, _, table = heading.text.partition(", ")
            papers.setdefault(paper, []).append(f'<a href="#{slug(heading.text)}">{_text(table or paper)}</a>')
    sections = [f'<a href="#{slug(h.text)}">{_text(h.text)}</a>' for h in headings if h.level == 2]
    lines = [f'<p class="sections">{" ".join(sections)}</p>']
    lines += [f"<p><span>{_text(paper)}</span> {' '.join(links)}</p>" for paper, links in papers.items()]
    return "\n".join(['<nav aria-label="Contents">', *lines, "</nav>"])


def _blocks(blocks: Iterable[Block]) -> str:
    return "\n".join(map(_block, blocks))


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f'<h{block.level} id="{slug(block.text)}">{_text(block.text)}</h{block.level}>'
        case Text():
            return f"<p>{_text(block.text)}</p>"
        case Facts():
            return _facts(block)
        case Items():
            return f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in block.lines)}</ul>"
        case Table():
            return _table(block)
        case Details():
            return f"<details>\n<summary>{_text(block.summary)}</summary>\n{_blocks(block.blocks)}\n</details>"
        case Verdict() | Figure() | Bars() | Panels() | Columns():
            return _laid_out(block)


def _laid_out(block: Verdict | Figure | Bars | Panels | Columns) -> str:
    match block:
        case Figure():
            return _figure(block)
        case Verdict():
            kind = {1: "good", -1: "bad"}.get(block.sign, "even")
            return f'<p class="verdict {kind}"><strong>{_text(block.headline)}</strong> {_text(block.reason)}</p>'
        case Bars():
            return "\n".join(['<div class="bars">', *map(_bar, block.bars), "</div>"])
        case Panels():
            return _panels(block)
        case Columns():
            columns = "\n".join(f"<section>\n{_blocks(column)}\n</section>" for column in block.columns)
            return f'<div class="columns">\n{columns}\n</div>'


def _facts(facts: Facts) -> str:
    items = []
    for term, lines in facts.items:
        items.append(f"<dt>{_text(term)}</dt>")
        items += [f"<dd>{_text(line)}</dd>" for line in lines]
    return "\n".join(["<dl>", *items, "</dl>"])


def _table(table: Table) -> str:
    kinds = [
        _class("text" if i < table.num_text else "", _long(c.text, _LONG_HEADING)) for i, c in enumerate(table.header)
    ]
    header = "".join(f'<th scope="col"{k}>{_inside(cell)}</th>' for k, cell in zip(kinds, table.header, strict=True))
    rows = "\n".join(_row(row, table.num_text) for row in table.rows)
    # a box that scrolls must be reachable by keyboard
    return (
        '<div class="box" tabindex="0" role="region" aria-label="table"><table>\n'
        f"<thead><tr>{header}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _row(row: Row, num_text: int) -> str:
    first, *others = row.cells
    cells = [f'<th scope="row" class="text">{_inside(first)}</th>']
    for i, cell in enumerate(others, start=1):
        kind = "text" if i < num_text else {1: "better", -1: "worse"}.get(cell.sign, "")
        cells.append(f"<td{_class(kind, _long(cell.text, _LONG_TEXT))}>{_inside(cell)}</td>")
    return f"<tr{_class('' if row.kind == 'plain' else row.kind)}>{''.join(cells)}</tr>"


def _long(text: str, limit: int) -> str:
    return "long" if len(text) > limit else ""


def _inside(cell: Cell) -> str:
    text = _text(cell.text)
    if len(cell.text) > _LONG_TEXT:
        text = text.replace("/", "/<wbr>")  # where a long path may be broken
    text = f"<strong>{text}</strong>" if cell.best else text
    text = f'{text} <mark class="{slug(cell.tag)}">{_text(cell.tag)}</mark>' if cell.tag else text
    return f"{text}<small>{_text(cell.under)}</small>" if cell.under else text


def _figure(figure: Figure) -> str:
    charts = "\n".join(f'<div class="chart">{chart.svg}</div>' for chart in figure.charts)
    caption = f"<figcaption><strong>{_text(figure.title)}.</strong> {_text(figure.caption)}</figcaption>"
    return f'<figure>\n<div class="charts">\n{charts}\n</div>\n{caption}\n</figure>'


def _bar(bar: Bar) -> str:
    name = f"{_text(bar.label)}<small>{_text(bar.under)}</small>" if bar.under else _text(bar.label)
    value = f"{_text(bar.value)}<small>{_text(bar.value_under)}</small>" if bar.value_under else _text(bar.value)
    kind = _class("value", {1: "better", -1: "worse"}.get(bar.sign, ""))
    return f'<div class="bar"><span>{name}</span>{bar.svg}<span{kind}>{value}</span></div>'


def _panels(panels: Panels) -> str:
    charts = "\n".join(
        f"<figure><figcaption><strong>{_text(chart.title)}</strong></figcaption>\n{chart.svg}</figure>"
        for chart in panels.charts
    )
    legend = "".join(f'<li><i class="{kind}"></i>{_text(text)}</li>' for kind, text in panels.legend)
    return f'<div class="panels">\n{charts}\n</div>' + (f'\n<ul class="legend">{legend}</ul>' if legend else "")


def _class(*names: str) -> str:
    names = tuple(filter(None, names))
    return f' class="{" ".join(names)}"' if names else ""


def _text(text: str) -> str:
    return escape(one_line(text))
