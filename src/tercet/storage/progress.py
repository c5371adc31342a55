"""Progress bars on standard error, with a rate and the time that is left."""

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Advance(Protocol):
    """Moves a bar on."""

    def __call__(self, num: int, *, note: str | None = None, earlier: bool = False) -> None:
        """Count `num` more as done.

        Args:
            num: How many.
            note: What to show beside the bar from now on.
            earlier: Whether an earlier run did them; they do not count in the rate.
        """


@contextlib.contextmanager
def progress_bar(label: str, *, total: int | None, unit: str, enabled: bool = True) -> Iterator[Advance]:
    """Show a bar while the block runs, and yield the function that advances it.

    Args:
        label: What is going on.
        total: How many there are in all; None where nobody knows.
        unit: What is counted.
        enabled: Whether anything is shown.
    """
    if not enabled:
        yield _no_bar
        return

    from rich.console import Console
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

    num_earlier = 0

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            elapsed_s = task.finished_time or task.elapsed or 0.0
            rate = (task.completed - num_earlier) / elapsed_s if elapsed_s else 0.0
            return Text(f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2f} {unit}/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, note="")

        def advance(num: int, *, note: str | None = None, earlier: bool = False) -> None:
            nonlocal num_earlier
            num_earlier += num if earlier else 0
            bar.advance(task, num)
            if note is not None:
                bar.update(task, note=note)

        try:
            yield advance
        except BaseException:
            bar.live.transient = True  # an error is shown instead of the bar, not under it
            bar.live.stop()
            bar.disable = True
            raise


def announce(what: str, *, enabled: bool = True) -> None:
    """Say on standard error what is being done, where it has no bar."""
    if enabled:
        from rich.console import Console

        Console(stderr=True, highlight=False).print(what, markup=False)


def _no_bar(num: int, *, note: str | None = None, earlier: bool = False) -> None:
    """Show nothing."""
