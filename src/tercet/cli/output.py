"""What a command says while it works, and where: the options --quiet, --verbose and --log-file of every command."""

import functools
import inspect
import logging
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tercet.errors import OutputError
from tercet.storage.progress import Shown

_LINE = "%(asctime)s %(levelname)s %(message)s"

_RESUMED = ("adapt", "cluster", "data fetch", "dedup", "embed", "mine", "synthesize", "train")
"""Commands that keep what they have done, and go on after it."""

logger = logging.getLogger("tercet")

_PANEL = "Messages"


def _option(name: str, default: object, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_SHARED = (
    _option(
        "quiet",
        False,
        Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.", rich_help_panel=_PANEL)],
    ),
    _option(
        "verbose",
        False,
        Annotated[bool, typer.Option("--verbose", "-v", help="More about what is done.", rich_help_panel=_PANEL)],
    ),
    _option(
        "log_file",
        None,
        Annotated[
            Path | None,
            typer.Option(metavar="FILE", help="Add all of it to a file, with times.", rich_help_panel=_PANEL),
        ],
    ),
)
"""The options that every command has."""


def speaking(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that every command has."""

    @functools.wraps(command)
    def run(*args: Any, quiet: bool, verbose: bool, log_file: Path | None, **options: Any) -> None:
        if log_file is not None:
            _log_to(log_file)
        if quiet:
            Shown.progress = False
            _set_level(logging.ERROR)
        elif verbose:
            logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
            _set_level(logging.INFO)
        command(*args, **options)

    own = inspect.signature(command)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *_SHARED])  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, **{each.name: each.annotation for each in _SHARED}}
    return run


def start_logging() -> None:
    """Send warnings to standard error, each as a line."""
    if not any(isinstance(handler, _StandardError) for handler in logging.root.handlers):
        logging.root.addHandler(_StandardError(logging.WARNING))


def say(message: str) -> None:
    """Say on standard error what a command has done; nothing with --quiet."""
    logger.debug("%s", message)
    if Shown.progress:
        typer.echo(message, err=True)


def say_error(message: str, error: BaseException | None = None) -> None:
    """Say what went wrong, whatever is asked for; the log file gets the traceback too."""
    logger.debug("%s", message, exc_info=error)
    typer.echo(message, err=True)


def stopped() -> str:
    """Return what to say after Ctrl-C: how to go on."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    is_resumed = any(" ".join(words[:num]) in _RESUMED for num in (1, 2))
    what = "What is done is kept. To go on, run it again" if is_resumed else "To start again"
    return f"Stopped. {what}: {_command()}"


def _command() -> str:
    """Return the command as it was typed, without keys."""
    words = ["tercet", *sys.argv[1:]]
    hidden = ["***" if before == "--api-key" else word for before, word in zip(["", *words], words, strict=False)]
    return shlex.join(re.sub(r"^--api-key=.*", "--api-key=***", word) for word in hidden)


class _StandardError(logging.Handler):
    """Writes to what standard error is at the time, so that a line stands above a bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            typer.echo(self.format(record), err=True)
        except Exception:  # as every handler of logging does
            self.handleError(record)


def _set_level(level: int) -> None:
    for handler in logging.root.handlers:
        if isinstance(handler, _StandardError):
            handler.setLevel(level)


def _log_to(path: Path) -> None:
    """Add what every logger of Tercet says to the end of a file."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}. Name another --log-file.") from error
    handler.setFormatter(logging.Formatter(_LINE))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    started = time.strftime("%Y-%m-%d %H:%M:%S %z")
    logger.debug("%s, %s", _command(), started)
