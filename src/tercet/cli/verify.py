"""`tercet verify`, and `tercet runs prune`."""

import json
from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, output

EXAMPLES = options.examples("tercet verify runs/nli", "tercet verify vectors.npy")
PRUNE_EXAMPLES = options.examples("tercet runs prune runs/nli")


def verify(
    path: Annotated[Path, typer.Argument(help="A model folder, a run, a folder of triplets, or a file of vectors.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare files with the hashes that were written with them; exit code 1 where one is damaged."""
    found = tercet.verify(path)
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else repr(found))
    if not found.is_whole:
        raise typer.Exit(1)


def prune(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
) -> None:
    """Remove the stages of a run that other settings made."""
    for folder in tercet.prune(run):
        output.say(f"removed: {folder}")
