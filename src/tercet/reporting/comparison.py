"""Our scores beside the papers' tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from tercet.evaluation.published import AVERAGES, Table, load_tables
from tercet.evaluation.published import Row as PrintedRow
from tercet.reporting import document
from tercet.reporting.document import Block, Cell, Details, Facts, Heading, Items
from tercet.reporting.protocols import our_differences, our_protocols
from tercet.reporting.results import Run

DIFFERENCE = "vs best published"


@dataclass(frozen=True)
class Score:
    """What a run has for a column."""

    value: Decimal
    """With as many decimals as the column has in print, so that every difference can be checked by hand."""
    num_tasks: int = 1
    of: int = 1

    @property
    def complete(self) -> bool:
        """Whether no task of an average is missing."""
        return self.num_tasks == self.of


def tables_with(runs: Sequence[Run]) -> list[Table]:
    """Return the published tables that share a measured task, or an average that a run has in full."""
    return [table for table in load_tables() if any(_shares(table, run) for run in runs)]


def published_section(runs: Sequence[Run]) -> list[Block]:
    """Return one table for each published one, with our rows below the printed ones."""
    blocks: list[Block] = []
    for table in tables_with(runs):
        sharing = [run for run in runs if _shares(table, run)]
        protocol: list[tuple[str, tuple[str, ...]]] = [
            ("Source", (f"{table.source}: {table.title}",)),
            ("Metric", (table.metric,)),
            ("Their protocol", (table.protocol,)),
            ("Our protocol", our_protocols(table, sharing)),
            ("Differences", our_differences(table, sharing) or ("none known",)),
        ]
        blocks += [
            Heading(table.source, level=3),
            document.Text(table.caption),
            beside(table, sharing),
            Facts(tuple((term, lines) for term, lines in protocol if lines)),
        ]
        if table.notes:
            blocks.append(Details("Notes on the printed table", (Items(table.notes),)))
    return blocks


def beside(table: Table, runs: Sequence[Run]) -> document.Table:
    """Return a published table with the rows of runs."""
    # a row leaves out what is blank, so the fullest row knows the order best
    fullest_first = sorted(table.rows, key=lambda row: -len(row.details))
    details = list(dict.fromkeys(name for row in fullest_first for name in row.details))
    decimals = {column: _decimals(table, column) for column in table.columns}
    ours = [{column: _score(table, run, column, places) for column, places in decimals.items()} for run in runs]
    printed = {column: _best_printed(table, column) for column in table.columns}
    best = {
        column: max([value for value in (printed[column], *_complete(ours, column)) if value is not None], default=None)
        for column in table.columns
    }
    rows = [_printed_row(row, details, best) for row in table.rows]
    for run, scores in zip(runs, ours, strict=True):
        blank = tuple(Cell("") for _ in details)
        figures = tuple(_our_cell(score, best[column]) for column, score in scores.items())
        rows.append(document.Row((Cell(run.label), *blank, *figures), kind="ours"))
        differences = tuple(_difference(score, printed[column]) for column, score in scores.items())
        rows.append(document.Row((Cell(DIFFERENCE), *blank, *differences), kind="difference"))
    headings = [_heading(table, column) for column in table.columns]
    header = (Cell("Model"), *(Cell(name) for name in details), *headings)
    return document.Table(header, tuple(rows), num_text=1 + len(details))


def _shares(table: Table, run: Run) -> bool:
    for column in table.columns:
        names = AVERAGES[table.averages[column]] if column in table.averages else (column,)
        if all(name in run.tasks for name in names):
            return True
    return False


def _score(table: Table, run: Run, column: str, decimals: int) -> Score | None:
    names = AVERAGES[table.averages[column]] if column in table.averages else (column,)
    value, num_tasks = run.average(names)
    return (
        None if value is None else Score(Decimal(f"{round(value, decimals) + 0.0:.{decimals}f}"), num_tasks, len(names))
    )


def _decimals(table: Table, column: str) -> int:
    return max(len(row[column].printed.partition(".")[2]) for row in table.rows)


def _best_printed(table: Table, column: str) -> Decimal | None:
    return max((Decimal(row[column].printed) for row in table.rows if row[column].value is not None), default=None)


def _complete(ours: list[dict[str, Score | None]], column: str) -> list[Decimal]:
    scores = [scores[column] for scores in ours]
    return [score.value for score in scores if score is not None and score.complete]


def _printed_row(row: PrintedRow, details: list[str], best: dict[str, Decimal | None]) -> document.Row:
    texts = [Cell(row.label), *(Cell(row.details.get(name, "")) for name in details)]
    figures = [
        Cell(cell.printed, best=cell.value is not None and Decimal(cell.printed) == best[cell.column])
        for cell in row.cells
    ]
    return document.Row((*texts, *figures))


def _our_cell(score: Score | None, best: Decimal | None) -> Cell:
    if score is None:
        return Cell()
    if not score.complete:
        return Cell(str(score.value), under=f"over {score.num_tasks} of {score.of}")
    return Cell(str(score.value), best=score.value == best)


def _difference(score: Score | None, printed: Decimal | None) -> Cell:
    if score is None or printed is None or not score.complete:
        return Cell()
    difference = score.value - printed
    return Cell(f"{difference:+}" if difference else str(abs(difference)), sign=(difference > 0) - (difference < 0))


def _heading(table: Table, column: str) -> Cell:
    heading = table.columns[column]
    name = f"mean of {table.averages[column]}" if column in table.averages else column
    if heading == "not printed":
        return Cell(name)
    return Cell(heading, under="" if _letters(heading) == _letters(name) else name)


def _letters(name: str) -> str:
    """Return a task's name as all spell it: STSb, STS-B and glue-STSB are one."""
    return "".join(filter(str.isalnum, name.lower().removeprefix("glue-")))
