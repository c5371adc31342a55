"""What the verbs of the guide and of mining return, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tercet.guide.doctor import Diagnosis
    from tercet.guide.models import ModelInfo
    from tercet.guide.recipes import RecipeInfo
    from tercet.guide.tasks import TaskInfo
    from tercet.mining.cluster import Clusters
    from tercet.mining.dedup import Deduplicated
    from tercet.mining.mine import MinedRows

_NUM_SHOWN = 5


def print_models(found: Sequence[ModelInfo]) -> None:
    """Print the models that can be named."""
    table = Table("model", "kind", "dims", "tokens", "MB", "about", box=None, header_style="bold")
    for each in found:
        if each.kind != "fresh":
            numbers = (each.dims, each.max_tokens, each.megabytes)
            cells = ("" if number is None else f"{number:,}" for number in numbers)
            table.add_row(Text(each.name), each.kind, *cells, Text(each.about))
    console = Console()
    console.print(table)
    fresh = ", ".join(each.name.removeprefix("random:") for each in found if each.kind == "fresh")
    console.print(Text(f"Random weights, with a tokenizer of yours, as random:SHAPE: {fresh}"))
    console.print(Text("Any model folder and any hub id can be named, too."))


def print_tasks(found: Sequence[TaskInfo]) -> None:
    """Print the tasks by their groups."""
    table = Table("group", "task", "data", "about", box=None, header_style="bold")
    group = None
    for each in found:
        ready = {True: "there", False: "missing", None: "?"}[each.ready]
        about = each.about if each.group != group or not each.group else ""
        note = each.fix if each.ready is False else about
        table.add_row("" if each.group == group else each.group, each.name, ready, Text(note))
        group = each.group
    console = Console()
    console.print(table)
    console.print(Text("A file of yours is a task, too: tercet evaluate --tasks my-pairs.tsv"))


def print_recipes(found: Sequence[RecipeInfo]) -> None:
    """Print the recipes, each with what it makes, starts from and reads."""
    console = Console()
    for each in found:
        console.print(Text(each.path, style="bold"), soft_wrap=True)
        console.print(Text(f"  {each.makes}"), soft_wrap=True)
        console.print(Text(f"  {each.start or 'nothing'} -> {' -> '.join(each.stages)}", style="dim"), soft_wrap=True)
        console.print(Text(f"  reads: {', '.join(each.data) or 'nothing'}", style="dim"), soft_wrap=True)


def print_diagnosis(found: Diagnosis) -> None:
    """Print what was found about the machine."""
    table = Table("", "", box=None, show_header=False)
    for package, version in found.versions.items():
        table.add_row(package, version)
    yes = {True: "yes", False: "no"}
    cpu = found.cpu
    table.add_row("cpu", Text(f"{cpu['processor']}, {cpu['cores']} cores, {cpu['threads']} threads"))
    table.add_row("instructions", f"AVX-512 {yes[cpu['avx512']]}, bf16 {yes[cpu['bf16']]}, VNNI {yes[cpu['vnni']]}")
    table.add_row("gpus", Text(", ".join(found.gpus) or "none"))
    table.add_row("free memory", "unknown" if found.memory_gb is None else f"{found.memory_gb:,} GB")
    table.add_row("free disk", f"{found.disk_gb:,} GB")
    table.add_row("TERCET_DATA", Text(found.data or "not set"))
    complete = [extra for extra, lacking in found.extras.items() if not lacking]
    table.add_row("extras", Text(", ".join(complete) or "none"))
    for extra, lacking in found.extras.items():
        if lacking:
            table.add_row(Text(f"  no {extra}"), Text(f"pip install 'tercet[{extra}]' ({', '.join(lacking)})"))
    for precision, speed in found.texts_per_s.items():
        table.add_row(f"mini, {precision}", f"{speed:,.0f} texts/s")
    console = Console()
    console.print(table)
    for line in found.advice:
        console.print(Text(line, style="yellow"))


def print_groups(found: Deduplicated) -> None:
    """Print how many texts were kept, and the largest groups."""
    console = Console()
    largest = sorted(found.groups, key=lambda group: -len(group.repeats))[:_NUM_SHOWN]
    for group in largest:
        for row, text, score in group.repeats[:1]:
            console.print(Text(f"{group.row:,} {group.text}\n  {row:,} {text}  {score:.3f}"))
    console.print(Text(f"{len(found.groups):,} of {found.num_texts:,} texts kept", style="bold"))


def print_clusters(found: Clusters) -> None:
    """Print the clusters: size, name and the text in the center."""
    table = Table("texts", "name", "center", box=None, header_style="bold")
    for each in found.clusters:
        table.add_row(f"{len(each.rows):,}", Text(each.name), Text(each.texts[0]))
    console = Console()
    console.print(table)
    total = f"{found.num_clustered:,} of {found.num_texts:,} texts in {len(found.clusters):,} clusters"
    console.print(Text(total, style="bold"))


def print_mined(found: MinedRows) -> None:
    """Print how many rows were found, and the first ones."""
    console = Console()
    for row in found.rows[:_NUM_SHOWN]:
        values = (
            " | ".join(value) if isinstance(value, list) else value for key, value in row.items() if key != "scores"
        )
        console.print(Text("\n  ".join(map(str, values))))
    console.print(Text(f"{len(found.rows):,} rows from {found.num_texts:,} texts", style="bold"))
