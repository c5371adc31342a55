"""`tercet push`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options

EXAMPLES = options.examples(
    "tercet push runs/nli/encoder hub:me/my-encoder",
    "tercet push runs/nli/encoder hub:me/my-encoder --upload",
)


def push(
    folder: Annotated[Path, typer.Argument(help="A model folder, such as the encoder/ of a run.")],
    name: Annotated[str, typer.Argument(metavar="hub:USER/NAME", help="What it is to be called on the hub.")],
    dry_run: Annotated[bool, typer.Option("--dry-run/--upload", help="List the files, or upload them.")] = True,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
) -> None:
    """Share a model folder on the Hugging Face hub. Without --upload, its files are only listed."""
    pushed = tercet.push(folder, name, dry_run=dry_run, private=private, progress=True)
    typer.echo(repr(pushed))
