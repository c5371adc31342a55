"""The commands of `tercet data`: parsing only."""

from pathlib import Path
from typing import Annotated

import typer

data_app = typer.Typer(help="Evaluation data.", no_args_is_help=True, rich_markup_mode="markdown")


@data_app.callback()
def data() -> None:
    """Get evaluation data."""


@data_app.command(
    epilog="Examples:\n\n"
    "    tercet data fetch sts --data eval\n\n"
    "    tercet data fetch sts,transfer BIOSSES glue-RTE --data eval"
)
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAMES...", help="Groups (sts, transfer, sentglue, domain, zh) or tasks (STS12, MR, retrieval ...)."
        ),
    ],
    folder: Annotated[Path | None, typer.Option("--data", help="Where to; $TERCET_DATA/eval where not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there with other content.")] = False,
) -> None:
    """Fetch the data of tasks from the hub, into the layout that evaluate reads, with checksums."""
    from tercet.data.sets.fetch import fetch as fetch_data

    report = fetch_data(names, data=folder, force=force, progress=True)
    typer.echo(f"{len(report.written)} files written, {len(report.unchanged)} unchanged")
    for note in report.notes:
        typer.echo(f"note: {note}")
    for task, reason in report.not_on_hub.items():
        typer.echo(f"not on the hub: {task} ({reason})")


@data_app.command(epilog="Example:\n\n    tercet data leaks recipes/models/mini.yaml --data eval")
def leaks(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="Whose training rows are looked at.")],
    folder: Annotated[Path | None, typer.Option("--data", help="Evaluation data ($TERCET_DATA/eval).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for a recipe's training texts in the evaluation data; exit code 1 where there are any."""
    import dataclasses
    import json

    from tercet.data.rows.words import LEAST_WORDS
    from tercet.evaluation.evaluate import choose_tasks, data_root
    from tercet.training.leaks import find_leaks
    from tercet.training.recipe import read_recipe

    found = find_leaks(read_recipe(recipe), data_root(folder, choose_tasks("sts")), progress=True)
    if as_json:
        typer.echo(json.dumps({path: dataclasses.asdict(leaks) for path, leaks in found.items()}, indent=2))
    else:
        for path, leaks in found.items():
            short = f" ({leaks.num_short:,} with fewer than {LEAST_WORDS} words not looked for)"
            typer.echo(f"{path}: {leaks.num_found:,} of {leaks.num_texts:,} texts found{short}")
            for text in leaks.examples:
                typer.echo(f"    {text}")
    if any(leaks.num_found for leaks in found.values()):
        raise typer.Exit(1)
