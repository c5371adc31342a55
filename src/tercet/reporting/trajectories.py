"""What happens while a model trains: alignment and uniformity (parallel translation, Figure 4), loss and dev score."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tercet.reporting.document import slug
from tercet.reporting.plots import Plan, Plot, Points, Series
from tercet.reporting.results import Run, Step

_LONGEST_LINE = 400
_OF_BATCHES = "trajectory-path"
"""The plot of what was measured on training batches, which are other texts in every step."""
_LABELS = {
    "alignment": "alignment (lower is better)",
    "uniformity": "uniformity (lower is better)",
    "loss": "loss",
    "dev": "score on the dev set",
    "temperature": "temperature",
}


@dataclass(frozen=True)
class _Track:
    """The steps of a run, or of one of its stages, where steps are counted anew."""

    label: str
    style: int
    dashes: int
    steps: list[Step]

    def points(self, x: str, y: str) -> Points:
        """Return two figures of each step that has both, in the order of steps."""
        found: dict[float, tuple[float, float]] = {}
        for step in self.steps:
            place = getattr(step, x), getattr(step, y)
            if step.step is not None and None not in place:
                found[step.step] = place  # a resumed run repeats steps: the last line counts
        return tuple(point for _, point in sorted(found.items()))


def trajectories(runs: Sequence[Run]) -> Iterator[Plan]:
    """Plan alignment and uniformity against steps and one another, a figure for each set they were measured on."""
    sets = dict.fromkeys(
        step.measured_on for run in runs for step in run.steps if (step.alignment, step.uniformity) != (None, None)
    )
    for measured_on in sets:
        tracks = _tracks(runs, measured_on)
        where = f" ({measured_on})" if measured_on else ""
        name = f"trajectory-{slug(measured_on)}" if measured_on else "trajectory"
        paths = [(track, track.points("uniformity", "alignment")) for track in tracks]
        plots = [
            _against_steps(tracks, "alignment", f"{name}-alignment", f"Alignment in training{where}"),
            _against_steps(tracks, "uniformity", f"{name}-uniformity", f"Uniformity in training{where}"),
            Plot(
                f"{name}-path",
                f"The way through the plane{where}",
                _LABELS["uniformity"],
                _LABELS["alignment"],
                tuple(Series(t.label, path, style=t.style, dashes=t.dashes, arrow=True) for t, path in paths if path),
            ),
        ]
        drawn = tuple(filter(_has_line, plots))
        if drawn:
            yield Plan(
                f"Training trajectories{where}",
                "Alignment and uniformity while training, as in the parallel-translation paper, Figure 4. In the "
                "plane, an open circle is the start and the arrow points to the end; the lower left corner is best.",
                drawn,
            )


def paths(runs: Sequence[Run]) -> list[Plot]:
    """Plan the ways through the plane of alignment and uniformity, one plot for each dev set."""
    plots = [plot for plan in trajectories(runs) for plot in plan.plots]
    return [plot for plot in plots if plot.name.endswith("-path") and plot.name != _OF_BATCHES]


def training(runs: Sequence[Run]) -> Iterator[Plan]:
    """Plan loss, dev score and temperature against steps."""
    titles = {"loss": "Loss", "dev": "Score on the dev set", "temperature": "Temperature"}
    tracks = _tracks(runs)
    plots = [_against_steps(tracks, key, f"training-{key}", f"{title} in training") for key, title in titles.items()]
    drawn = tuple(filter(_has_line, plots))
    if drawn:
        text = f"What the training log has, against steps. Logs longer than {_LONGEST_LINE} points are drawn as means."
        yield Plan("Training", text, drawn)


def _tracks(runs: Sequence[Run], *measured_on: str | None) -> list[_Track]:
    """Return the tracks of all runs; of the steps that were measured on a set, where one is given."""
    tracks = []
    for style, run in enumerate(runs):
        names = list(dict.fromkeys(step.stage for step in run.steps))
        for dashes, name in enumerate(names):
            label = f"{run.label}, {name}" if name and len(names) > 1 else run.label
            steps = [s for s in run.steps if s.stage == name and (not measured_on or s.measured_on in measured_on)]
            tracks.append(_Track(label, style, dashes, steps))
    return tracks


def _against_steps(tracks: Sequence[_Track], key: str, name: str, title: str) -> Plot:
    found = [(track, track.points("step", key)) for track in tracks]
    series = tuple(Series(t.label, _thin(points), style=t.style, dashes=t.dashes) for t, points in found if points)
    return Plot(name, title, "training steps", _LABELS[key], series, counts_x=True)


def _has_line(plot: Plot) -> bool:
    return any(len(series.points) > 1 for series in plot.series)


def _thin(points: Points) -> Points:
    """Return at most so many points as a drawing can show, each the mean of its neighbours."""
    size = math.ceil(len(points) / _LONGEST_LINE)
    if size == 1:
        return points
    chunks = [points[start : start + size] for start in range(0, len(points), size)]
    return tuple((chunk[-1][0], math.fsum(y for _, y in chunk) / len(chunk)) for chunk in chunks)
