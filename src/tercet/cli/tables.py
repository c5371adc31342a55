"""Results as tables in the terminal."""

from typing import Any

import typer


def print_results(results: dict[str, Any]) -> None:
    """Print the scores of an evaluation."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    columns = ("task", "metric", "score", "num", "note")
    table = Table(*columns, box=None, header_style="bold", title=escape(results["model"]))
    for name, result in results["tasks"].items():
        score, num, note = f"{result['score']:.2f}", f"{result['num']:,}", result.get("note", "")
        table.add_row(escape(name), result["metric"], score, num, escape(note))
    for name, reason in results["missing"].items():
        table.add_row(escape(name), "", "missing", "", escape(reason.partition(": ")[0]), style="dim")
    for group, average in results["averages"].items():
        note = "" if average["complete"] else f"over {average['num_tasks']} of {average['of']} tasks only"
        table.add_row(f"average {group}", "", f"{average['score']:.2f}", "", note, style="bold")
    Console().print(table)


def print_hits(hits: list[Any], as_json: bool) -> None:
    """Print what a search found, as a table or as JSON lines."""
    import json
    from dataclasses import asdict

    if as_json:
        for hit in hits:
            typer.echo(json.dumps(asdict(hit), ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("score", "row", "text", box=None, header_style="bold")
    for hit in hits:
        table.add_row(f"{hit.score:.4f}", f"{hit.row:,}", Text(hit.text))
    Console().print(table)
