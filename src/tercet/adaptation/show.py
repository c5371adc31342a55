"""What came of an adaptation, on the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tercet.adaptation.adapt import Adapted
from tercet.adaptation.neighbours import Example
from tercet.adaptation.page import difference, shown, verdict

_NUM_EXAMPLES = 2


def summary(adapted: Adapted) -> None:
    """Print measures before and after, the examples that changed most, and where everything is."""
    findings, console = adapted.findings, Console()
    table = Table("measured on", "metric", box=None, header_style="bold")
    for name in ("before", "after", "difference"):
        table.add_column(name, justify="right")
    for measure in findings.measures:
        style = "green" if measure.gain > 0 else "red" if measure.gain < 0 else ""
        values = (shown(measure, measure.before), shown(measure, measure.after))
        table.add_row(Text(measure.name), measure.metric, *values, Text(difference(measure), style=style))
    console.print(table)
    for example in sorted(findings.examples, key=lambda example: -example.num_new)[:_NUM_EXAMPLES]:
        console.print(_neighbours(example))
    for warning in findings.warnings:
        console.print(Text(f"Note: {warning}", style="yellow"))
    console.print(Text(f"Report: {adapted.out / 'report.html'}"), soft_wrap=True)
    console.print(Text(f"Encoder: {adapted.encoder}"), soft_wrap=True)
    console.print(Text(verdict(findings), style="bold"), soft_wrap=True)


def _neighbours(example: Example) -> Table:
    table = Table("before", "after", box=None, header_style="dim", title=Text(f"Nearest to: {example.query}"))
    table.title_justify = "left"
    for old, new in zip(example.before, example.after, strict=True):
        table.add_row(Text(old.text), Text(new.text, style="bold" if new.moved else ""))
    return table
