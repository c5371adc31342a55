"""`tercet report`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, output

EXAMPLES = options.examples(
    "tercet report results --out report.html",
    "tercet report runs/nli runs/gense other/results.json --out report.md",
    "tercet report runs/frozen runs/dual runs/multilingual --out trajectories.png",
)


def report(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_OR_RESULTS...", help="results.json files, or folders that hold one; training runs."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Where to: .html, .md (figures beside it), or .svg or .png (training trajectories alone).",
        ),
    ],
    force: options.Force = False,
) -> None:
    """Put results beside the papers' published tables, with figures."""
    for path in tercet.report(inputs, out=out, force=force):
        output.say(f"{path}")
