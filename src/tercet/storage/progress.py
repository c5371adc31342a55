"""What is going on, on standard error: bars in a terminal, a plain line every ten seconds where there is none."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

EVERY_S = 10.0
"""How many seconds lie between two plain lines."""

logger = logging.getLogger("tercet.progress")
"""Gets every plain line at the level DEBUG, whatever is shown: it is for files."""


class Advance(Protocol):
    """Moves a bar on."""

    def __call__(self, num: int, *, note: str | None = None, earlier: bool = False) -> None:
        """Count `num` more as done.

        Args:
            num: How many.
            note: What to show beside the bar from now on.
            earlier: Whether an earlier run did them; they do not count in the rate.
        """


class Shown:
    """What this process shows, wherever progress is asked for."""

    progress = True


@contextlib.contextmanager
def progress_bar(label: str, *, total: int | None, unit: str, enabled: bool = True) -> Iterator[Advance]:
    """Show what is done while the block runs, and yield the function that counts it.

    In a terminal it is a bar. Elsewhere it is a plain line every ten seconds, and one at the end if there was one
    before; the logger `tercet.progress` gets these lines in any case.

    Args:
        label: What is going on, as `embedding`.
        total: How many there are in all; None where nobody knows.
        unit: What is counted.
        enabled: Whether anything is shown.
    """
    if not enabled:
        yield _no_bar
        return

    from rich.console import Console

    console = Console(stderr=True)
    is_bar = Shown.progress and console.is_terminal
    count = _Count(label, total, unit)
    with _lines(count, shown=Shown.progress and not is_bar):
        if not is_bar:
            yield count
            return
        with _bar(count, console) as advance:
            yield advance


def announce(what: str, *, enabled: bool = True) -> None:
    """Say on standard error what is being done, where it has no bar."""
    if enabled:
        _say(what, shown=Shown.progress)


@dataclass
class _Count:
    """How much is done, and how fast."""

    label: str
    total: int | None
    unit: str
    num: int = 0
    num_earlier: int = 0
    note: str = ""
    start_s: float = field(default_factory=time.monotonic)

    def __call__(self, num: int, *, note: str | None = None, earlier: bool = False) -> None:
        self.num += num
        self.num_earlier += num if earlier else 0
        self.note = self.note if note is None else note

    @property
    def line(self) -> str:
        """All of it in a line."""
        elapsed_s = time.monotonic() - self.start_s
        rate = (self.num - self.num_earlier) / elapsed_s if elapsed_s else 0.0
        of = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{self.num:,}{of} {self.unit}", _rate(rate, self.unit)]
        if self.total is not None and rate and self.num < self.total:
            parts.append(f"{_clock((self.total - self.num) / rate)} left")
        return f"{self.label}: {', '.join(parts + ([self.note] if self.note else []))}"


@contextlib.contextmanager
def _lines(count: _Count, *, shown: bool) -> Iterator[None]:
    """Say a count every ten seconds, in a thread of its own, because nobody knows how long one step takes."""
    if not shown and not logger.isEnabledFor(logging.DEBUG):
        yield
        return
    is_over, is_said = threading.Event(), threading.Event()

    def say() -> None:
        while not is_over.wait(EVERY_S):
            is_said.set()
            _say(count.line, shown=shown)

    thread = threading.Thread(target=say, name="tercet-progress", daemon=True)
    thread.start()
    try:
        yield
        if is_said.is_set():
            _say(count.line, shown=shown)
    finally:
        is_over.set()
        thread.join()


@contextlib.contextmanager
def _bar(count: _Count, console: "Console") -> Iterator[Advance]:
    """Show a count as a bar, too; an error is shown instead of it, not under it."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            elapsed_s = task.finished_time or task.elapsed or 0.0
            return Text(_rate((count.num - count.num_earlier) / elapsed_s if elapsed_s else 0.0, count.unit))

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(count.label, total=count.total, note="")

        def advance(num: int, *, note: str | None = None, earlier: bool = False) -> None:
            count(num, note=note, earlier=earlier)
            bar.update(task, completed=count.num, note=count.note)

        try:
            yield advance
        except BaseException:
            bar.live.transient = True
            bar.live.stop()
            bar.disable = True
            raise


def _say(line: str, *, shown: bool) -> None:
    if shown:
        sys.stderr.write(f"{line}\n")
    logger.debug("%s", line)


def _rate(rate: float, unit: str) -> str:
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2f} {unit}/s"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _no_bar(num: int, *, note: str | None = None, earlier: bool = False) -> None:
    """Show nothing."""
