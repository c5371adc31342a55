"""The verb `report`: results beside the papers' published cells, with figures, as one file."""

from collections.abc import Sequence
from pathlib import Path

from tercet.errors import SettingError
from tercet.reporting.comparison import published_section, tables_with
from tercet.reporting.document import Block, Document, Heading, Text
from tercet.reporting.figures import figures_of, trajectory_drawing
from tercet.reporting.html import to_html
from tercet.reporting.markdown import chart_files, to_markdown
from tercet.reporting.others import geometry, other_tasks, parts, speed
from tercet.reporting.overview import overview
from tercet.reporting.results import Run, read_runs
from tercet.reporting.sweeps import sweeps
from tercet.storage.files import atomic_write, check_writable, make_folder
from tercet.storage.locks import hold_target
from tercet.storage.texts import several

__all__ = ["report"]


def report(inputs: Sequence[str | Path], *, out: str | Path) -> list[Path]:
    """Write a report of results and training runs.

    The same input gives the same bytes. An HTML report is one file that needs no other; a Markdown report has its
    figures as SVG files in a folder beside it (`report-figures` for `report.md`). A drawing (SVG or PNG) is the way of
    training runs through the plane of alignment and uniformity alone.

    Args:
        inputs: `results.json` files, or folders that hold one, a training log (`metrics.jsonl`), or both; folders of
            sweeps, of which all finished runs are taken.
        out: Where to: a name that ends in `.html`, `.md`, `.svg` or `.png`.

    Returns:
        The files that were written, the report first.

    Raises:
        InputError: Nothing was named, or a file is missing or is no results file.
        SettingError: The target's ending is unknown, or there are figures to draw and matplotlib is not installed.
        OutputError: The target cannot be written.
    """
    target = Path(out)
    if target.suffix.lower() not in (".html", ".md", ".svg", ".png"):
        raise SettingError(f"{target}: a report ends in .html or .md, a drawing of trajectories in .svg or .png.")
    check_writable(target)
    with hold_target(target):
        return _report(inputs, target)


def _report(inputs: Sequence[str | Path], target: Path) -> list[Path]:
    if target.suffix.lower() in (".svg", ".png"):
        drawing = trajectory_drawing(read_runs(several(inputs)), target.suffix.lower().removeprefix("."))
        with atomic_write(target) as stream:
            stream.write(drawing)
        return [target]
    document = build(read_runs(several(inputs)))
    if target.suffix.lower() == ".html":
        return _write({target: to_html(document)})
    folder = target.with_name(f"{target.stem}-figures")
    charts = chart_files(document, folder)
    if charts:
        make_folder(folder)
    # the report comes last, so that it never names a figure that is not there yet
    return _write(charts | {target: to_markdown(document, folder.name)})[::-1]


def build(runs: Sequence[Run]) -> Document:
    """Return the report of runs, not yet written in a format."""
    tables = published_section(runs)
    figures = figures_of(runs)
    blocks: list[Block] = [*overview(runs, num_tables=len(tables_with(runs))), *sweeps(runs)]
    if figures:
        blocks += [Heading("Figures"), *figures]
    if tables:
        blocks += [
            Heading("Beside the published tables"),
            Text(
                "Published rows are as printed (where one says Ours, it is that paper's). The models of this report "
                "are below them, marked, each with its difference to the best published figure of a column. The best "
                "of a column is in bold. An average over fewer tasks than the paper's says so and is not compared."
            ),
            *tables,
        ]
    blocks += [*other_tasks(runs), *geometry(runs), *speed(runs), *parts(runs)]
    return Document("Tercet report", blocks)


def _write(files: dict[Path, str]) -> list[Path]:
    for path, text in files.items():
        with atomic_write(path, "w") as stream:
            stream.write(text)
    return list(files)
