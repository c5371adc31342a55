"""The command line: parsing only, one file a verb. What a command does is the function of its name in `tercet`."""

import contextlib
import logging
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tercet.cli import (
    adapt,
    data,
    embed,
    evaluate,
    export,
    guide,
    mining,
    options,
    report,
    search,
    serve,
    synthesize,
    train,
    verify,
)
from tercet.errors import TercetError
from tercet.storage.tracebacks import keep_traceback


class _EndedError(Exception):
    """A file ended too early."""


class _Commands(TyperGroup):
    """Commands in which the end of a file is an error as others are, and not Ctrl-D."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise _EndedError from error


app = typer.Typer(
    name="tercet",
    cls=_Commands,
    help="Sentence embeddings with T5-family encoders, and better encoders from unlabelled text.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Evaluation data.", no_args_is_help=True, rich_markup_mode="markdown")
runs_app = typer.Typer(help="Runs of `tercet train`.", no_args_is_help=True, rich_markup_mode="markdown")

app.command(epilog=embed.EXAMPLES)(embed.embed)
app.command(epilog=search.EXAMPLES)(search.search)
app.command(epilog=mining.DEDUP_EXAMPLES)(mining.dedup)
app.command(epilog=mining.CLUSTER_EXAMPLES)(mining.cluster)
app.command(epilog=mining.MINE_EXAMPLES)(mining.mine)
app.command(epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=synthesize.EXAMPLES)(synthesize.synthesize)
app.command(epilog=synthesize.REFILTER_EXAMPLES)(synthesize.refilter)
app.command(epilog=synthesize.COMPARE_EXAMPLES)(synthesize.compare)
app.command(epilog=adapt.EXAMPLES)(adapt.adapt)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=export.EXAMPLES)(export.export)
app.command(epilog=serve.EXAMPLES)(serve.serve)
app.command(epilog=guide.MODELS_EXAMPLES)(guide.models)
app.command(epilog=guide.TASKS_EXAMPLES)(guide.tasks)
app.command(epilog=guide.RECIPES_EXAMPLES)(guide.recipes)
app.command(epilog=guide.DOCTOR_EXAMPLES)(guide.doctor)
app.add_typer(data_app, name="data")
app.command(epilog=verify.EXAMPLES)(verify.verify)
app.add_typer(runs_app, name="runs")
runs_app.command(epilog=verify.PRUNE_EXAMPLES)(verify.prune)
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


UNFORESEEN = 70
"""The exit code of an error that nobody foresaw: a fault of Tercet, or of a library, and not of what was given."""


def main() -> None:
    """Run the command line: the one place where errors become a line on standard error and an exit code.

    Errors of ours and of the disk end with 2, those that nobody foresaw with 70 and a traceback in a file. On SIGTERM
    what is open is closed, and temporary copies go.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with contextlib.suppress(ValueError):  # another thread than the main one cannot
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics of libraries in Rust are no Exception
        message, code = _said_of(error)
        options.say(" ".join(line.strip() for line in message.splitlines()))
        sys.exit(code)


def _said_of(error: BaseException) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    name = type(error).__name__
    if isinstance(error, TercetError):
        return f"{name}: {error}", 2
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "MemoryError: there is not enough memory. Take smaller batches, a smaller model or another machine.", 2
    if isinstance(error, _EndedError):
        return "InputError: a file ended before its end. Run `tercet verify` on what the command reads.", 2
    if isinstance(error, OSError):
        return f"{name}: {error}. Check the disk, its permissions and TMPDIR.", 2
    file = keep_traceback(error)
    where = "" if file is None else f" The traceback is in {file}: please report it."
    return f"{name}: {str(error)[:500] or 'no message'}: nobody foresaw this error.{where}", UNFORESEEN
