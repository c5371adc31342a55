"""What the verbs return, as tables in the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tercet.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tercet.adaptation.adapt import Adapted
    from tercet.adaptation.label import Labels
    from tercet.adaptation.neighbours import Example as Neighbours
    from tercet.evaluation.evaluate import Evaluation
    from tercet.synthesis.comparison import Example
    from tercet.synthesis.corpus import Synthesis
    from tercet.training.check import RowCheck
    from tercet.training.leaks import Leaks
    from tercet.training.pipeline import RunResult
    from tercet.vectors.search import Hit

_NUM_EXAMPLES = 2

_BARS = " .:-=+*#%@"
"""From a share of 0 to one of 1."""

_UNLIKE_THE_PAPER = (
    "The discriminator relabels where GenSE used an NLI cross-encoder.",
    "DINO (GPT-2 XL with prompts, no supervision), which GenSE's Table 9 shows too, is left out.",
)


def print_hits(hits: Sequence[Hit], as_json: bool) -> None:
    """Print what a search found, as a table or as JSON lines."""
    if as_json:
        for hit in hits:
            typer.echo(json.dumps(hit.to_dict(), ensure_ascii=False))
        return
    table = Table("score", "row", "text", box=None, header_style="bold")
    for hit in hits:
        table.add_row(f"{hit.score:.4f}", f"{hit.row:,}", Text(hit.text))
    Console().print(table)


def print_scores(found: Evaluation) -> None:
    """Print the scores of an evaluation."""
    dims = dict.fromkeys(name for result in found.tasks.values() for name in result.get("by_dims", {}))
    columns = ("task", "metric", "score", *(f"first {name}" for name in dims), "num", "note")
    blank = [""] * len(dims)
    table = Table(*columns, box=None, header_style="bold", title=Text(found.model))
    for name, result in found.tasks.items():
        score, num, note = f"{result['score']:.2f}", f"{result['num']:,}", result.get("note", "")
        by_dims = result.get("by_dims", {})
        cut = [f"{by_dims[each]:.2f}" if each in by_dims else "" for each in dims]
        table.add_row(Text(name), result["metric"], score, *cut, num, Text(note))
    for name, reason in found.missing.items():
        table.add_row(Text(name), "", "missing", *blank, "", Text(reason.partition(": ")[0]), style="dim")
    for group, average in found.averages.items():
        note = "" if average["complete"] else f"over {average['num_tasks']} of {average['of']} tasks only"
        table.add_row(f"average {group}", "", f"{average['score']:.2f}", *blank, "", note, style="bold")
    Console().print(table)


def print_run(result: RunResult) -> None:
    """Print what became of each stage of a run, its scores, and where the encoder is."""
    for stage in result.stages:
        best = stage.notes.get("best")
        score = f", best dev {best['score']:.2f} at step {best['step']:,}" if best else ""
        say(f"{stage.name}: {'done before' if stage.skipped else 'done'}{score}")
    if result.results is not None:
        print_scores(result.results)
    say(f"{result.encoder or result.folder}")


def print_synthesis(made: Synthesis) -> None:
    """Print what each rule dropped."""
    table = Table("", "rows", "share", box=None, header_style="bold", title=Text(str(made.folder)))
    sentences, filters = made.audit["sentences"], made.audit["filters"]
    for path, source in sentences["sources"].items():
        table.add_row(Text(f"{path}: rows"), f"{source['num_read']:,}", "")
        table.add_row("  unreadable", f"{source['num_bad']:,}", _share(source["num_bad"], source["num_read"]))
    for title, tally, kept in (("sentences", sentences, "used"), ("candidates", filters, "accepted")):
        table.add_row(title, f"{tally['num']:,}", "", style="bold")
        for rule, dropped in tally["dropped"].items():
            table.add_row(f"  {rule}", f"-{dropped['num']:,}", _share(dropped["num"], tally["num"]))
        table.add_row(f"  {kept}", f"{tally['num_kept']:,}", _share(tally["num_kept"], tally["num"]))
    console = Console()
    console.print(table)
    console.print(Text(repr(made)), soft_wrap=True)
    if made.advice:
        console.print(Text(made.advice), soft_wrap=True)


def print_comparison(examples: Sequence[Example]) -> None:
    """Print what folders have for the same sentences, as in GenSE's Table 9."""
    table = Table("method", "entailment", "contradiction", box=None, header_style="bold")
    for example in examples:
        table.add_row(Text(f"Input: {example.anchor}", style="bold"))
        for name, found in example.found.items():
            for positive, negative in found or [("N/A", None)]:
                table.add_row(Text(f"  {name}"), Text(positive), Text(negative or "N/A"))
    console = Console()
    console.print(table)
    for line in _UNLIKE_THE_PAPER:
        console.print(line, markup=False)


def print_adaptation(adapted: Adapted) -> None:
    """Print measures before and after, the examples that changed most, and where everything is."""
    findings, console = adapted.findings, Console()
    table = Table("measured on", "metric", box=None, header_style="bold")
    for name in ("before", "after", "difference", "95% interval"):
        table.add_column(name, justify="right")
    for measure in findings.measures:
        style = {1: "green", 0: "", -1: "red"}[measure.sign]
        before, after, difference, interval = measure.texts()
        table.add_row(Text(measure.name), measure.metric, before, after, Text(difference, style=style), interval)
    console.print(table)
    for example in sorted(findings.examples, key=lambda example: -example.num_new)[:_NUM_EXAMPLES]:
        console.print(_neighbours(example))
    for warning in findings.warnings:
        console.print(Text(f"Note: {warning}", style="yellow"))
    console.print(Text(f"Report: {adapted.out / 'report.html'}"), soft_wrap=True)
    console.print(Text(f"Encoder: {adapted.encoder}"), soft_wrap=True)
    console.print(Text(findings.verdict, style="bold"), soft_wrap=True)


def print_labels(labels: Labels) -> None:
    """Print how many questions are answered, and what to do next."""
    Console().print(Text(repr(labels)), soft_wrap=True)


def print_leaks(found: Mapping[str, Leaks]) -> None:
    """Print how many texts of each source stand in the evaluation data, and some of them."""
    for path, own in found.items():
        short = f" ({own.num_short:,} with too few words not looked for)"
        typer.echo(f"{path}: {own.num_found:,} of {own.num_texts:,} texts found{short}")
        for where in (own.tasks, own.files):
            if where:
                typer.echo("  in " + ", ".join(f"{name}: {num:,}" for name, num in sorted(where.items())))
        for text in own.examples:
            typer.echo(f"    {text}")


def print_checks(found: Mapping[str, RowCheck]) -> None:
    """Print what the rows of each stage look like, and what to do."""
    console = Console()
    for name, own in found.items():
        tokens = ", ".join(f"{label} {num:,}" for label, num in own.tokens.items())
        console.print(Text(f"{name}: {own.num_rows:,} rows", style="bold"))
        console.print(Text(f"  tokens: {tokens}; {own.truncated:.1%} of the texts are cut"))
        console.print(Text(f"  repeated: {own.duplicates:.1%} of the rows, {own.repeated:.1%} of the first texts"))
        for kind, cosines in own.cosines.items():
            bars = "".join(_BARS[round(share * (len(_BARS) - 1))] for share in cosines.histogram)
            console.print(Text(f"  cosines with {kind:9}: mean {cosines.mean:.2f}  0 |{bars}| 1"))
        if own.cosines:
            console.print(Text(f"  nearer to another row's positive than to their own: {own.false_negatives:.1%}"))
        if own.hard_above is not None:
            console.print(Text(f"  hard negatives nearer than the positive: {own.hard_above:.1%}"))
        for line in own.advice or ["nothing to change"]:
            console.print(Text(f"  -> {line}"), soft_wrap=True)


def _neighbours(example: Neighbours) -> Table:
    table = Table("before", "after", box=None, header_style="dim", title=Text(f"Nearest to: {example.query}"))
    table.title_justify = "left"
    for old, new in zip(example.before, example.after, strict=True):
        table.add_row(Text(old.text), Text(new.text, style="bold" if new.moved else ""))
    return table


def _share(num: int, total: Any) -> str:
    return f"{num / total:.1%}" if total else ""
