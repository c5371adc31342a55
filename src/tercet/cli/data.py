"""`tercet data fetch` and `tercet data leaks`."""

import json
from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, tables

FETCH_EXAMPLES = options.examples(
    "tercet data fetch sts --data eval",
    "tercet data fetch sts,transfer BIOSSES glue-RTE --data eval",
)
CHECK_EXAMPLES = options.examples("tercet data check recipes/mini/simcse-bert-nli.yaml")
LEAKS_EXAMPLES = options.examples("tercet data leaks recipes/models/mini.yaml --data eval")


def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAMES...", help="Groups (sts, transfer, sentglue, domain, zh) or tasks (STS12, MR, retrieval ...)."
        ),
    ],
    data: options.Data = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there with other content.")] = False,
) -> None:
    """Fetch the data of tasks from the hub, into the layout that evaluate reads, with checksums."""
    fetched = tercet.fetch(names, data=data, force=force, progress=True)
    typer.echo(f"{len(fetched.written)} files written, {len(fetched.unchanged)} unchanged")
    for note in fetched.notes:
        typer.echo(f"note: {note}")
    for task, reason in fetched.not_on_hub.items():
        typer.echo(f"not on the hub: {task} ({reason})")


def check(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="Whose training rows are looked at.")],
    data: options.Data = None,
    env: options.Env = None,
    changes: options.Changes = None,
    num_rows: Annotated[int, typer.Option(min=2, help="How many rows of each stage are looked at.")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at a recipe's rows before training: duplicates, lengths, cosines under the start, and what to do."""
    found = tercet.check(recipe, data=data, env=env or (), changes=changes or (), num_rows=num_rows, progress=True)
    if as_json:
        typer.echo(json.dumps({name: own.to_dict() for name, own in found.items()}, indent=2))
    else:
        tables.print_checks(found)


def leaks(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="Whose training rows are looked at.")],
    data: options.Data = None,
    env: options.Env = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for a recipe's training texts in the evaluation data; exit code 1 where there are any."""
    found = tercet.leaks(recipe, data=data, env=env or [], progress=True)
    if as_json:
        typer.echo(json.dumps({path: own.to_dict() for path, own in found.items()}, indent=2))
    else:
        tables.print_leaks(found)
    if any(own.num_found for own in found.values()):
        raise typer.Exit(1)
