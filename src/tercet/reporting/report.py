"""The verb `report`: results beside the papers' published cells, with figures, as one file."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tercet.errors import OutputError, SettingError
from tercet.reporting.comparison import published_section, tables_with
from tercet.reporting.document import TITLE, Block, Document, Heading, Text
from tercet.reporting.figures import figures_of, trajectory_drawing
from tercet.reporting.html import to_html
from tercet.reporting.markdown import chart_files, to_markdown
from tercet.reporting.others import geometry, other_tasks, parts, speed
from tercet.reporting.overview import overview
from tercet.reporting.results import Run, read_runs
from tercet.reporting.sweeps import sweeps
from tercet.storage.files import atomic_write, check_writable, make_folder, target_errors
from tercet.storage.locks import hold_target
from tercet.storage.texts import several

__all__ = ["report"]

_MAX_HEAD_BYTES = 4096
"""In how many bytes from its start the title of a report stands."""


def report(inputs: Sequence[str | Path], *, out: str | Path, force: bool = False) -> list[Path]:
    """Write a report of results and training runs.

    The same input gives the same bytes. An HTML report is one file that needs no other; a Markdown report has its
    figures as SVG files in a folder beside it (`report-figures` for `report.md`). A drawing (SVG or PNG) is the way of
    training runs through the plane of alignment and uniformity alone.

    Args:
        inputs: `results.json` files, or folders that hold one, a training log (`metrics.jsonl`), or both; folders of
            sweeps, of which all finished runs are taken.
        out: Where to: a name that ends in `.html`, `.md`, `.svg` or `.png`.
        force: Whether files that are no report are replaced; an earlier report is replaced in any case.

    Returns:
        The files that were written, the report first.

    Raises:
        InputError: Nothing was named, or a file is missing or is no results file.
        SettingError: The target's ending is unknown, or there are figures to draw and matplotlib is not installed.
        OutputError: The target cannot be written, or something else is there.
    """
    target = Path(out)
    if target.suffix.lower() not in (".html", ".md", ".svg", ".png"):
        raise SettingError(f"{target}: a report ends in .html or .md, a drawing of trajectories in .svg or .png.")
    check_writable(target)
    with hold_target(target):
        files = _files_of(read_runs(several(inputs)), target)
        if not force:
            _check_replaced(files)
        for folder in {path.parent for path in files}:
            make_folder(folder)
        # the report comes last, so that it never names a figure that is not there yet
        for path, content in reversed(files.items()):
            with atomic_write(path) as stream:
                stream.write(content)
    return [*files]


def _files_of(runs: Sequence[Run], target: Path) -> dict[Path, bytes]:
    """Return what is to be written, the report first."""
    ending = target.suffix.lower()
    if ending in (".svg", ".png"):
        drawing = trajectory_drawing(runs, ending.removeprefix("."))
        return {target: drawing.replace(b"?>", f"?>\n<!-- {TITLE} -->".encode(), 1) if ending == ".svg" else drawing}
    document = build(runs)
    if ending == ".html":
        return {target: to_html(document).encode()}
    folder = target.with_name(f"{target.stem}-figures")
    charts = {path: svg.encode() for path, svg in chart_files(document, folder).items()}
    return {target: to_markdown(document, folder.name).encode()} | charts


def _check_replaced(files: Iterable[Path]) -> None:
    """Raise OutputError if one of the files is there and no report."""
    for path in files:
        with target_errors(path):
            if path.is_file() and TITLE.encode() not in path.read_bytes()[:_MAX_HEAD_BYTES]:
                raise OutputError(f"{path}: is no report, and would be lost. Name another target, or take --force.")


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
    return Document(TITLE, blocks)
