"""The command line: parsing only, one file a verb. What a command does is the function of its name in `tercet`."""

import logging
import sys
from typing import Annotated

import typer

from tercet.cli import adapt, data, embed, evaluate, export, options, report, search, serve, synthesize, train
from tercet.errors import TercetError

app = typer.Typer(
    name="tercet",
    help="Sentence embeddings with T5-family encoders, and better encoders from unlabelled text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Evaluation data.", no_args_is_help=True, rich_markup_mode="markdown")

app.command(epilog=embed.EXAMPLES)(embed.embed)
app.command(epilog=search.EXAMPLES)(search.search)
app.command(epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=synthesize.EXAMPLES)(synthesize.synthesize)
app.command(epilog=synthesize.REFILTER_EXAMPLES)(synthesize.refilter)
app.command(epilog=synthesize.COMPARE_EXAMPLES)(synthesize.compare)
app.command(epilog=adapt.EXAMPLES)(adapt.adapt)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=serve.EXAMPLES)(serve.serve)
app.add_typer(data_app, name="data")
data_app.command(epilog=data.FETCH_EXAMPLES)(data.fetch)
data_app.command(epilog=data.LEAKS_EXAMPLES)(data.leaks)


def _show_version(wanted: bool) -> None:
    if wanted:
        from tercet import __version__

        typer.echo(f"tercet {__version__}")
        raise typer.Exit


@app.callback()
def tercet(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Sentence embeddings with T5-family encoders, and better encoders from unlabelled text."""


def main() -> None:
    """Run the command line: errors of ours and of the disk go to standard error as one line, with exit code 2."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        app()
    except (TercetError, OSError) as error:
        fix = ". Check the disk, its permissions and TMPDIR." if isinstance(error, OSError) else ""
        message = f"{type(error).__name__}: {error}{fix}"
        options.say(" ".join(line.strip() for line in message.splitlines()))
        sys.exit(2)
