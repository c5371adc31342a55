"""`tercet models`, `tercet tasks`, `tercet recipes`, `tercet doctor`."""

import json
from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import listings, options

MODELS_EXAMPLES = options.examples("tercet models")
TASKS_EXAMPLES = options.examples("tercet tasks", "tercet tasks --data eval --json")
RECIPES_EXAMPLES = options.examples("tercet recipes", "tercet recipes my-recipes")
DOCTOR_EXAMPLES = options.examples("tercet doctor")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def models(as_json: AsJson = False) -> None:
    """List the models that need no download."""
    found = tercet.models()
    if as_json:
        typer.echo(json.dumps([each.to_dict() for each in found], indent=2))
    else:
        listings.print_models(found)


def tasks(data: options.Data = None, as_json: AsJson = False) -> None:
    """List what an encoder can be measured by, and whether the data is there."""
    found = tercet.tasks(data=data)
    if as_json:
        typer.echo(json.dumps([each.to_dict() for each in found], indent=2))
    else:
        listings.print_tasks(found)


def recipes(
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]", help="Recipes of your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the recipes: what each makes, and which data it needs."""
    found = tercet.recipes(folder)
    if as_json:
        typer.echo(json.dumps([each.to_dict() for each in found], indent=2))
    else:
        listings.print_recipes(found)


def doctor(
    speed: Annotated[bool, typer.Option(help="Measure the speed, for about five seconds.")] = True,
    as_json: AsJson = False,
) -> None:
    """Show what is installed, what this machine can do, and how fast it embeds."""
    found = tercet.doctor(speed=speed)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        listings.print_diagnosis(found)
