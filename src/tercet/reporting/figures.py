"""The figures of the papers, with our runs: what is drawn. How it is drawn is in `drawing`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tercet.errors import InputError
from tercet.reporting.document import Chart, Figure, slug
from tercet.reporting.overview import num_parameters
from tercet.reporting.plots import Plan, Plot, Series
from tercet.reporting.results import Run, SpeedCell, TaskResult
from tercet.reporting.scaling import scaling
from tercet.reporting.trajectories import paths, training, trajectories
from tercet.storage.extras import require

_STSB = {"STS-B test": "STSB", "STS-B dev": "STSB-dev"}


def figures_of(runs: Sequence[Run]) -> list[Figure]:
    """Return the figures that there is something to draw in.

    Raises:
        SettingError: There is something to draw, and matplotlib is not installed.
    """
    plans = plan(runs)
    if not plans:
        return []
    require("matplotlib", "report")
    from tercet.reporting.drawing import draw

    return [Figure(p.title, p.caption, tuple(Chart(q.name, q.title, draw(q)) for q in p.plots)) for p in plans]


def trajectory_drawing(runs: Sequence[Run], file_format: str) -> bytes:
    """Return the ways of runs through the plane of alignment and uniformity, a panel for each set, as `svg` or `png`.

    Raises:
        InputError: No run was measured while it trained.
        SettingError: matplotlib is not installed.
    """
    plots = paths(runs)
    if not plots:
        raise InputError("these runs were not measured on dev pairs. Train with trajectory: {sets: [STSB-dev]}.")
    require("matplotlib", "report")
    from tercet.reporting.drawing import draw_together

    return draw_together(plots, file_format)


def plan(runs: Sequence[Run]) -> list[Plan]:
    """Return what would be drawn, each plot under a name of its own."""
    plans = [*scaling(runs), *_geometry(runs), *trajectories(runs), *training(runs), *_speed(runs)]
    names: Counter[str] = Counter()
    unique = []
    for figure in plans:
        plots = []
        for plot in figure.plots:
            names[plot.name] += 1
            plots.append(plot if names[plot.name] == 1 else replace(plot, name=f"{plot.name}-{names[plot.name]}"))
        unique.append(replace(figure, plots=tuple(plots)))
    return unique


def _geometry(runs: Sequence[Run]) -> Iterator[Plan]:
    having = [(i, run, run.tasks["geometry"]) for i, run in enumerate(runs) if "geometry" in run.tasks]
    for measured_on in dict.fromkeys(_set_of(result) for _, _, result in having):
        scored_by = _STSB.get(measured_on, "STSB")
        series = []
        for i, run, result in having:
            if _set_of(result) == measured_on and result.alignment is not None and result.uniformity is not None:
                score = run.tasks[scored_by].score if scored_by in run.tasks else None
                point = ((result.uniformity, result.alignment),)
                series.append(Series(run.label, point, style=i, line=False, named=True, values=(score,)))
        if series:
            yield Plan(
                f"Alignment and uniformity on {measured_on}",
                "Lower is better on both axes, so that the best corner is the lower left one; squared distances. As in "
                f"Sentence-T5, Figure 4 and GenSE, Figure 2. The colour is the Spearman correlation on {scored_by}.",
                (
                    Plot(
                        f"geometry-{slug(measured_on)}",
                        f"Alignment and uniformity ({measured_on})",
                        "uniformity (lower is better)",
                        "alignment (lower is better)",
                        tuple(series),
                        value_label=f"{scored_by} Spearman x 100",
                    ),
                ),
            )


def _set_of(result: TaskResult) -> str:
    return result.measured_on or "scored pairs"


def _speed(runs: Sequence[Run]) -> Iterator[Plan]:
    grids = [(i, run, run.tasks["speed"].grid) for i, run in enumerate(runs) if "speed" in run.tasks]
    cells = [cell for _, _, grid in grids for cell in grid]
    if not cells:
        return
    lengths = sorted({cell.words for cell in cells})
    length, batch = lengths[len(lengths) // 2], _batch_of_all([grid for _, _, grid in grids])
    at_once = f"batch {batch}" if batch else "own batches"
    plots = [
        _speed_plot(grids, "words", f"Speed by length ({at_once})", "words a sentence", ("batch", batch)),
        _speed_plot(grids, "batch", f"Speed by batch ({length} words)", "sentences a batch", ("words", length)),
    ]
    sized = [(i, run, num_parameters(run), run.tasks["speed"].score) for i, run, _ in grids]
    sizes = tuple(
        Series(run.label, ((size, score),), style=i, line=False, named=True)
        for i, run, size, score in sized
        if size and score > 0
    )
    if len(sizes) > 1:
        title = "Speed by size"
        plots.append(
            Plot(
                "speed-size", title, "number of parameters", "sentences/s", sizes, log_x=True, log_y=True, counts_x=True
            )
        )
    drawn = tuple(plot for plot in plots if plot.series and (plot.name == "speed-size" or _is_line(plot)))
    if drawn:
        yield Plan(
            "Speed",
            "Sentences a second, as in Sentence-T5, Figure 5, on the machine of each run: medians, with bars from the "
            "slowest to the fastest round. Own batches are those that an encoder forms where nothing is asked for. "
            "Both axes are logarithmic.",
            drawn,
        )


def _batch_of_all(grids: Sequence[list[SpeedCell]]) -> int | None:
    """Return the batch that runs are compared at: their own where each has that, else the largest."""
    if all(any(cell.batch is None for cell in grid) for grid in grids if grid):
        return None
    return max(cell.batch for grid in grids for cell in grid if cell.batch)


def _is_line(plot: Plot) -> bool:
    return any(len(series.points) > 1 for series in plot.series)


def _speed_plot(
    grids: Sequence[tuple[int, Run, list[SpeedCell]]], key: str, title: str, x_label: str, fixed: tuple[str, int | None]
) -> Plot:
    precisions = list(dict.fromkeys(cell.precision for _, _, grid in grids for cell in grid))
    series = []
    for style, run, grid in grids:
        for precision in precisions:
            cells = sorted(
                (c for c in grid if c.precision == precision and getattr(c, fixed[0]) == fixed[1] and getattr(c, key)),
                key=lambda cell: int(getattr(cell, key)),
            )
            if cells:
                points = tuple((float(getattr(cell, key)), cell.sentences_per_s) for cell in cells)
                spread = tuple((cell.min or cell.sentences_per_s, cell.max or cell.sentences_per_s) for cell in cells)
                label = run.label if len(precisions) == 1 else f"{run.label}, {precision}"
                dashes = precisions.index(precision)
                series.append(Series(label, points, style=style, dashes=dashes, spread=spread))
    ticks = tuple(sorted({x for line in series for x, _ in line.points}))
    return Plot(f"speed-{key}", title, x_label, "sentences/s", tuple(series), log_x=True, log_y=True, ticks_x=ticks)
