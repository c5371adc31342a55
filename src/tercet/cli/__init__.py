"""The command line: parsing only, one file a verb. What a command does is the function of its name in `tercet`."""

import contextlib
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
    output,
    push,
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


class _StoppedError(Exception):
    """Somebody pressed Ctrl-C."""


class _Commands(TyperGroup):
    """Commands in which the end of a file is an error as others are, and not Ctrl-D; and which say how to go on."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise _EndedError from error
        except KeyboardInterrupt as error:
            raise _StoppedError from error


app = typer.Typer(
    name="tercet",
    cls=_Commands,
    help="Sentence embeddings with T5-family encoders, and better encoders from unlabelled text.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog=(
        "Exit codes: 0 done; 1 done, and the answer is no (nothing scored, leaks or damage found); 2 an error that the "
        "last line names; 70 an error that nobody foresaw; 130 Ctrl-C; 143 SIGTERM."
    ),
)
data_app = typer.Typer(help="Data for evaluation and training.", no_args_is_help=True, rich_markup_mode="markdown")
runs_app = typer.Typer(help="Runs of `tercet train`.", no_args_is_help=True, rich_markup_mode="markdown")

app.command(epilog=embed.EXAMPLES)(output.speaking(embed.embed))
app.command(epilog=search.EXAMPLES)(output.speaking(search.search))
app.command(epilog=mining.DEDUP_EXAMPLES)(output.speaking(mining.dedup))
app.command(epilog=mining.CLUSTER_EXAMPLES)(output.speaking(mining.cluster))
app.command(epilog=mining.MINE_EXAMPLES)(output.speaking(mining.mine))
app.command(epilog=evaluate.EXAMPLES)(output.speaking(evaluate.evaluate))
app.command(epilog=train.EXAMPLES)(output.speaking(train.train))
app.command(epilog=synthesize.EXAMPLES)(output.speaking(synthesize.synthesize))
app.command(epilog=synthesize.REFILTER_EXAMPLES)(output.speaking(synthesize.refilter))
app.command(epilog=synthesize.COMPARE_EXAMPLES)(output.speaking(synthesize.compare))
app.command(epilog=adapt.EXAMPLES)(output.speaking(adapt.adapt))
app.command(epilog=report.EXAMPLES)(output.speaking(report.report))
app.command(epilog=export.EXAMPLES)(output.speaking(export.export))
app.command(epilog=serve.EXAMPLES)(output.speaking(serve.serve))
app.command(epilog=push.EXAMPLES)(output.speaking(push.push))
app.command(epilog=guide.MODELS_EXAMPLES)(output.speaking(guide.models))
app.command(epilog=guide.TASKS_EXAMPLES)(output.speaking(guide.tasks))
app.command(epilog=guide.RECIPES_EXAMPLES)(output.speaking(guide.recipes))
app.command(epilog=guide.DOCTOR_EXAMPLES)(output.speaking(guide.doctor))
app.add_typer(data_app, name="data")
app.command(epilog=verify.EXAMPLES)(output.speaking(verify.verify))
app.add_typer(runs_app, name="runs")
runs_app.command(epilog=verify.PRUNE_EXAMPLES)(output.speaking(verify.prune))
data_app.command(epilog=data.FETCH_EXAMPLES)(output.speaking(data.fetch))
data_app.command(epilog=data.CHECK_EXAMPLES)(output.speaking(data.check))
data_app.command(epilog=data.LEAKS_EXAMPLES)(output.speaking(data.leaks))


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

STOPPED = 128 + signal.SIGINT
"""The exit code after Ctrl-C."""


def main() -> None:
    """Run the command line: the one place where errors become a line on standard error and an exit code.

    Errors of ours and of the disk end with 2, those that nobody foresaw with 70 and a traceback in a file. On SIGTERM
    what is open is closed, and temporary copies go.
    """
    output.start_logging()
    with contextlib.suppress(ValueError):  # another thread than the main one cannot
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except SystemExit:
        raise
    except (KeyboardInterrupt, _StoppedError):
        output.say_error(output.stopped())
        sys.exit(STOPPED)
    except BaseException as error:  # panics of libraries in Rust are no Exception
        message, code = _said_of(error)
        output.say_error(" ".join(line.strip() for line in message.splitlines()), error)
        sys.exit(code)


def _said_of(error: BaseException) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    if isinstance(error, TercetError):
        return str(error), 2
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "There is not enough memory. Take smaller batches, a smaller model or another machine.", 2
    if isinstance(error, _EndedError):
        return "A file ended before its end. Run `tercet verify` on what the command reads.", 2
    if isinstance(error, OSError):
        return f"{error}. Check the disk, its permissions and TMPDIR.", 2
    file = keep_traceback(error)
    where = "" if file is None else f" The traceback is in {file}: please report it."
    what = f"{str(error)[:500] or 'no message'} ({type(error).__name__})"
    return f"{what}: nobody foresaw this error.{where}", UNFORESEEN
