"""What a drawing is made of: series of points, axes, labels. No matplotlib is needed to say it."""

from dataclasses import dataclass

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Series:
    """Points that belong together: a model in one place, or along a line."""

    label: str
    points: Points
    style: int = 0
    """A number that stands for a colour and a marker, so that a model looks the same in every drawing."""
    published: bool = False
    """Whether it is a paper's and not ours."""
    line: bool = True
    dashes: int = 0
    named: bool = False
    """Whether the points carry the label, instead of the legend."""
    arrow: bool = False
    """Whether the line has a direction: an open circle at its start, an arrow at its end."""
    spread: Points = ()
    """The lowest and the highest value behind each point."""
    values: tuple[float | None, ...] = ()
    """What the points' colours stand for."""


@dataclass(frozen=True)
class Plot:
    """One drawing."""

    name: str
    """Its file name and the prefix of its identifiers."""
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    counts_x: bool = False
    """Whether the x axis shows large counts: 10M, 20K."""
    ticks_x: tuple[float, ...] = ()
    value_label: str | None = None
    """What colours stand for, where they stand for values."""


@dataclass(frozen=True)
class Plan:
    """A figure that is still to be drawn."""

    title: str
    caption: str
    plots: tuple[Plot, ...]
