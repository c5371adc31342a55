"""Drawings without a library: SVG that takes the colours of the page and fills its width.

Places are percentages, so shapes stretch with the page while lines and letters keep their size. Classes name colours of
`style.css`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from tercet.reporting.document import one_line

Point = tuple[float, float]

_LONGEST_TITLE = 160


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high`, as percentages of a width."""

    low: float
    high: float
    ticks: tuple[float, ...] = ()

    def at(self, value: float) -> float:
        """Return where a number is."""
        return 100 * (value - self.low) / (self.high - self.low)

    @classmethod
    def around(cls, values: Iterable[float]) -> "Scale":
        """Return a scale with 0 and all values on it, and round numbers as ticks."""
        numbers = [0.0, *values]
        low, high = min(numbers), max(numbers)
        step = _round_step((high - low) / 4) if high > low else 1.0
        first, last = int(low // step), -int(-high // step)
        ticks = tuple(number * step for number in range(first, last + 1))
        margin = 0.04 * step * (last - first)
        return cls(ticks[0] - margin, ticks[-1] + margin, ticks)


def _round_step(least: float) -> float:
    size = 10.0 ** next(power for power in range(-6, 7) if 10.0**power >= least)
    return next(size * part for part in (0.1, 0.2, 0.5, 1.0) if size * part >= least)


def difference(scale: Scale, value: float, interval: tuple[float, float], kind: str) -> str:
    """Draw a bar from zero to a difference, with a whisker for its interval."""
    zero, end, low, high = (scale.at(number) for number in (0.0, value, *interval))
    shapes = [_line(scale.at(tick), 0, scale.at(tick), 100, "grid") for tick in scale.ticks]
    shapes += [
        _rect(min(zero, end), 25, abs(end - zero), 50, kind),
        _line(zero, 0, zero, 100, "axis"),
        _line(low, 50, high, 50, "whisker"),
        _line(low, 32, low, 68, "whisker"),
        _line(high, 32, high, 68, "whisker"),
    ]
    return _svg("strip", shapes)


def axis(scale: Scale) -> str:
    """Draw the numbers below bars of differences."""
    texts = [_text(scale.at(tick), 60, f"{tick:+g}" if tick else "0", "middle") for tick in scale.ticks]
    return _svg("strip axis-labels", texts)


def remaining(kept: int, before: int, total: int) -> str:
    """Draw how many of all are left after a rule, and how many it dropped."""
    left, was = (100 * number / max(total, 1) for number in (kept, before))
    return _svg(
        "strip", [_rect(0, 20, 100, 60, "ground"), _rect(0, 20, was, 60, "dropped"), _rect(0, 20, left, 60, "kept")]
    )


def histogram(shares: Sequence[tuple[Sequence[float], str]], edges: Sequence[float], highest: float, label: str) -> str:
    """Draw histograms over one another.

    Args:
        shares: For each, how much lies in each bin, and its class.
        edges: The edges of the bins.
        highest: The share that is as high as the drawing.
        label: What is drawn, for those who cannot see it.
    """
    scale = Scale(edges[0], edges[-1])
    floor, width = 88.0, scale.at(edges[1])
    shapes = []
    for heights, kind in shares:
        bars = (
            _rect(scale.at(edge), floor * (1 - height / highest), width, floor * height / highest, "")
            for edge, height in zip(edges[:-1], heights, strict=True)
            if height
        )
        shapes.append(_group(bars, kind))
    shapes.append(_line(0, floor, 100, floor, "axis"))
    ticks = [tick / 5 for tick in range(-5, 6) if edges[0] <= tick / 5 <= edges[-1]]
    for tick in ticks:
        place = scale.at(tick)
        anchor = "start" if place < 2 else "end" if place > 98 else "middle"
        shapes += [_line(place, floor, place, floor + 2, "axis"), _text(place, 98, f"{tick:.1f}", anchor)]
    return _svg("histogram", shapes, label)


def scatter(
    points: Sequence[Point], groups: Sequence[int], titles: Sequence[str], limits: tuple[Scale, Scale], label: str
) -> str:
    """Draw a map: points in the colours of their groups, each with a title, and each group's number in its middle.

    Args:
        points: Where they are.
        groups: The group of each, from 0.
        titles: What is shown where the mouse rests on a point.
        limits: What the drawing covers, from left to right and from top to bottom.
        label: What is drawn, for those who cannot see it.
    """
    places = [(limits[0].at(x), limits[1].at(y)) for x, y in points]
    shapes, numbers = [], []
    for group in sorted(set(groups)):
        members = [i for i, own in enumerate(groups) if own == group]
        dots = (_dot(*places[i], titles[i]) for i in members)
        shapes.append(_group(dots, f"c{group}"))
        x, y = (sorted(places[i][side] for i in members)[len(members) // 2] for side in (0, 1))
        numbers.append(_text(x, y, str(group + 1), "middle"))
    return _svg("map", [*shapes, *numbers], label)


def _svg(kind: str, shapes: Iterable[str], label: str = "") -> str:
    # a line of a drawing has its texts beside it, so a reader who cannot see it misses nothing
    about = f'role="img" aria-label="{escape(one_line(label))}"' if label else 'aria-hidden="true"'
    return f'<svg class="{kind}" {about}>{"".join(shapes)}</svg>'


def _group(shapes: Iterable[str], kind: str) -> str:
    return f'<g class="{kind}">{"".join(shapes)}</g>'


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    about = f' class="{kind}"' if kind else ""
    return f'<rect{about} x="{x:.2f}%" y="{y:.2f}%" width="{width:.2f}%" height="{height:.2f}%"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.2f}%" y1="{y1:.2f}%" x2="{x2:.2f}%" y2="{y2:.2f}%"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.2f}%" y="{y:.2f}%" text-anchor="{anchor}">{escape(text)}</text>'


def _dot(x: float, y: float, title: str) -> str:
    title = one_line(title)
    title = title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}\u2026"
    return f'<circle cx="{x:.1f}%" cy="{y:.1f}%" r="4"><title>{escape(title)}</title></circle>'
