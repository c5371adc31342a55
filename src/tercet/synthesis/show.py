"""Tables on standard output: what became of sentences and candidates, and strategies side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tercet.synthesis.comparison import compare

_UNLIKE_THE_PAPER = (
    "The discriminator relabels where GenSE used an NLI cross-encoder.",
    "DINO (GPT-2 XL with prompts, no supervision), which GenSE's Table 9 shows too, is left out.",
)


def audit(counts: dict[str, Any], folder: Path) -> None:
    """Print what each rule dropped."""
    table = Table("", "rows", "share", box=None, header_style="bold", title=Text(str(folder)))
    sentences, filters = counts["sentences"], counts["filters"]
    for path, source in sentences["sources"].items():
        table.add_row(Text(f"{path}: rows"), f"{source['num_read']:,}", "")
        table.add_row("  unreadable", f"{source['num_bad']:,}", _share(source["num_bad"], source["num_read"]))
    for title, tally, kept in (("sentences", sentences, "used"), ("candidates", filters, "accepted")):
        table.add_row(title, f"{tally['num']:,}", "", style="bold")
        for rule, dropped in tally["dropped"].items():
            table.add_row(f"  {rule}", f"-{dropped['num']:,}", _share(dropped["num"], tally["num"]))
        table.add_row(f"  {kept}", f"{tally['num_kept']:,}", _share(tally["num_kept"], tally["num"]))
    Console().print(table)


def comparison(folders: Sequence[Path]) -> None:
    """Print what folders have for the same sentences, as in GenSE's Table 9."""
    table = Table("method", "entailment", "contradiction", box=None, header_style="bold")
    for example in compare(folders):
        table.add_row(Text(f"Input: {example.anchor}", style="bold"))
        for name, found in example.found.items():
            for positive, negative in found or [("N/A", None)]:
                table.add_row(Text(f"  {name}"), Text(positive), Text(negative or "N/A"))
    console = Console()
    console.print(table)
    for line in _UNLIKE_THE_PAPER:
        console.print(line, markup=False)


def _share(num: int, total: int) -> str:
    return f"{num / total:.1%}" if total else ""
