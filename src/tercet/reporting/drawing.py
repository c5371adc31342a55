"""Drawings as SVG or PNG, by matplotlib: text stays text, and the same plot gives the same bytes."""

import io
import math
import re
import warnings
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tercet.reporting.document import TITLE, one_line
from tercet.reporting.overview import in_short
from tercet.reporting.plots import Plot, Series

Box = tuple[float, float, float, float]
"""Left, low, right, high; in pixels."""

_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a model's name is a dollar sign
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a919e",
    "axes.labelcolor": "#1c2330",
    "text.color": "#1c2330",
    "xtick.color": "#4a5261",
    "ytick.color": "#4a5261",
    "axes.grid": True,
    "grid.color": "#e3e6ec",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.dpi": 72,  # so that a point is a pixel
}
_OURS = ("#0067b1", "#c9480b", "#00855f", "#b0478a", "#8a6a00", "#2e9fd4", "#6b3fa0", "#a8323e", "#5c7a29", "#3d4450")
_PUBLISHED = ("#6b7a90", "#8c6bb1", "#4f9a7a", "#b0793a", "#c2607d")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
_WIDTH_IN, _HEIGHT_IN, _LEGEND_LINE_IN = 5.0, 3.8, 0.22
_NO_METADATA = {"svg": dict.fromkeys(("Date", "Creator", "Format", "Type")), "png": {"Software": TITLE}}
_DPI = 144


def draw(plot: Plot) -> str:
    """Return a plot as an SVG element that can stand in an HTML page beside others."""
    return _element(draw_together([plot], "svg").decode(), plot)


def draw_together(plots: Sequence[Plot], file_format: str) -> bytes:
    """Return plots side by side as one file, `svg` or `png`; the legend is for all of them."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": plots[0].name}), warnings.catch_warnings():
        # the SVG names a glyph that this machine's font lacks all the same, and the reader's machine has its own fonts
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        labels = _short_labels([series for plot in plots for series in plot.series])
        listed = {series.label: series for plot in plots for series in plot.series if not series.named}
        widest = max((len(labels[label]) for label in listed), default=0)
        num_columns = 2 * len(plots) if len(listed) > 1 and widest <= 24 else len(plots)
        legend_in = _LEGEND_LINE_IN * math.ceil(len(listed) / num_columns)
        figure = Figure(figsize=(_WIDTH_IN * len(plots), _HEIGHT_IN + legend_in), layout="constrained")
        FigureCanvasAgg(figure)
        panels = [(figure.add_subplot(1, len(plots), i + 1), plot) for i, plot in enumerate(plots)]
        handles: dict[str, Any] = {}
        for axes, plot in panels:
            axes.set_title(plot.title, pad=10)
            axes.set_xlabel(plot.x_label)
            axes.set_ylabel(plot.y_label)
            handles |= {series.label: _draw_series(axes, series) for series in plot.series if not series.named}
            _draw_points(figure, axes, plot)
            _set_axes(axes, plot)
        if handles:
            names = [labels[label] for label in handles]
            figure.legend([*handles.values()], names, loc="outside lower center", ncols=num_columns, handlelength=2.6)
        _fix_layout(figure)
        for axes, plot in panels:
            _draw_arrows(axes, [series for series in plot.series if series.arrow and not series.named])
            _name_points(axes, plot, labels)
        stream = io.BytesIO()
        figure.savefig(stream, format=file_format, metadata=_NO_METADATA[file_format], dpi=_DPI)
    return stream.getvalue()


def _fix_layout(figure: Figure) -> None:
    """Place axes and legend once and for all, so that what is written later can be placed by them."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")


def _draw_series(axes: Axes, series: Series) -> Any:
    x, y = zip(*series.points, strict=True)
    marker = _MARKERS[series.style % len(_MARKERS)]
    if series.published:
        color = _PUBLISHED[series.style % len(_PUBLISHED)]
        return axes.plot(x, y, color=color, lw=1.2, marker=marker, ms=5, mfc="white", zorder=2)[0]
    color, dashes = _color(series), _DASHES[series.dashes % len(_DASHES)]
    size = 5 if len(x) <= 40 else 0
    if series.spread:
        low, high = zip(*series.spread, strict=True)
        axes.vlines(x, low, high, color=color, lw=1.2, alpha=0.6)
    if series.arrow:
        axes.plot(x[1:], y[1:], color=color, ls="", marker=".", ms=size, zorder=3)
    start = {"markevery": [0], "mfc": "white", "ms": 6} if series.arrow else {"ms": size}
    marker = "o" if series.arrow else marker
    return axes.plot(x, y, color=color, lw=1.7, ls=dashes, marker=marker, zorder=3, **start)[0]


def _draw_points(figure: Figure, axes: Axes, plot: Plot) -> None:
    """Draw the points that carry a name, in the colour of their model or of their value."""
    named = [series for series in plot.series if series.named]
    if plot.value_label is None:
        for series in named:
            x, y = zip(*series.points, strict=True)
            axes.plot(x, y, ls="", marker="*", ms=13, color=_color(series), mec="#1c2330", mew=0.6, zorder=4)
        return
    pairs = [(point, value) for s in named for point, value in zip(s.points, s.values, strict=True)]
    valued = [(x, y, value) for (x, y), value in pairs if value is not None]
    unknown = [point for point, value in pairs if value is None]
    if unknown:
        x, y = zip(*unknown, strict=True)
        axes.plot(x, y, ls="", marker="o", ms=8, mfc="white", mec="#4a5261", zorder=4)
    if valued:
        x, y, values = zip(*valued, strict=True)
        spread = Normalize(min(values), max(values)) if len(set(values)) > 1 else Normalize(0, 200)
        dots = axes.scatter(x, y, c=values, norm=spread, cmap="viridis", s=70, edgecolors="#1c2330", lw=0.6, zorder=4)
        if len(set(values)) > 1:
            bar = figure.colorbar(dots, ax=axes, label=plot.value_label, pad=0.04)
            bar.outline.set_visible(False)


def _set_axes(axes: Axes, plot: Plot) -> None:
    axes.margins(0.12 if any(series.named or series.arrow for series in plot.series) else 0.06)
    if plot.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(_log_locator([x for s in plot.series for x, _ in s.points]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
    if plot.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(_log_locator([y for s in plot.series for _, y in s.points]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if plot.ticks_x:
        axes.xaxis.set_major_locator(FixedLocator(plot.ticks_x))
    if plot.counts_x or plot.log_x:
        in_words = plot.counts_x and plot.log_x
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: in_short(round(value)) if in_words else f"{value:,.10g}")
        )


def _log_locator(values: Sequence[float]) -> LogLocator:
    decades = math.log10(max(values) / min(values)) if values else 1
    return LogLocator(subs=(1, 2, 3, 5, 7) if decades < 1 else (1, 2, 5) if decades < 2 else (1, 3), numticks=30)


def _draw_arrows(axes: Axes, lines: list[Series]) -> None:
    for series in lines:
        places = axes.transData.transform(series.points)
        # from a point far enough away to give the arrow a direction
        tails = [i for i, place in enumerate(places) if math.dist(place, places[-1]) > 8]
        if tails:
            style = {
                "arrowstyle": "-|>",
                "color": _color(series),
                "lw": 1.7,
                "shrinkA": 0,
                "shrinkB": 0,
                "mutation_scale": 14,
            }
            axes.annotate("", series.points[-1], series.points[tails[-1]], arrowprops=style, zorder=4)


def _name_points(axes: Axes, plot: Plot, labels: dict[str, str]) -> None:
    """Write names beside points, where they hide neither one another nor a point."""
    taken = [box for series in plot.series for box in _boxes(axes, series)]
    frame = axes.get_window_extent().extents

    def cost(place: tuple[float, float], offset: tuple[float, float], box: Box) -> tuple[float, float]:
        crossed = sum(_shared(part, other) for part in _way(place, box) for other in taken)
        return _hidden(box, taken, frame) + crossed, math.hypot(*offset)

    for series in (series for series in plot.series if series.named):
        for i, point in enumerate(series.points):
            value = series.values[i] if series.values else None
            text = labels[series.label] + (f" ({value:.2f})" if value is not None else "")
            note = axes.annotate(text, point, (0, 0), textcoords="offset points", fontsize=10, zorder=5)
            size = note.get_window_extent()
            place = axes.transData.transform(point).tolist()
            offset, box = min(_places(place, size.width, size.height), key=lambda choice: cost(place, *choice))
            note.set_position(offset)
            taken += [box, *_way(place, box)]
            if _way(place, box):
                _lead(axes, point, place, box)


def _boxes(axes: Axes, series: Series) -> list[Box]:
    """Return what a series covers, in pixels: its points, and smaller boxes along its line."""
    places = axes.transData.transform(series.points).tolist()
    boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    for (x0, y0), (x1, y1) in pairwise(places) if series.line else ():
        num = max(1, round(math.dist((x0, y0), (x1, y1)) / 6))
        along = ((x0 + (x1 - x0) * i / num, y0 + (y1 - y0) * i / num) for i in range(num))
        boxes += [(x - 2, y - 2, x + 2, y + 2) for x, y in along]
    return boxes


def _near(place: tuple[float, float], box: Box) -> tuple[float, float]:
    return min(max(place[0], box[0]), box[2]), min(max(place[1], box[1]), box[3])


def _way(place: tuple[float, float], box: Box) -> list[Box]:
    """Return small boxes along the line from a point to its name; none where the name is near enough without."""
    near = _near(place, box)
    distance = math.dist(place, near)
    if distance <= 12:
        return []
    steps = [step / distance for step in range(10, round(distance), 4)]
    along = [(place[0] + (near[0] - place[0]) * t, place[1] + (near[1] - place[1]) * t) for t in steps]
    return [(x - 2, y - 2, x + 2, y + 2) for x, y in along]


def _lead(axes: Axes, point: tuple[float, float], place: tuple[float, float], box: Box) -> None:
    """Draw a thin line from a point to its name."""
    near = _near(place, box)
    style = {"arrowstyle": "-", "lw": 0.6, "color": "#4a5261", "shrinkA": 0, "shrinkB": 4}
    offset = (near[0] - place[0], near[1] - place[1])
    axes.annotate("", point, offset, textcoords="offset points", arrowprops=style)


def _places(place: tuple[float, float], width: float, height: float) -> list[tuple[tuple[float, float], Box]]:
    """Return where a text can stand around a point: right, left, above, below, and further away."""
    beside, above, below = -height / 3, height * 0.1, -height * 0.8
    choices = []
    for away in (9, 18, 30, 44, 60):
        offsets = [(away, beside), (-away - width, beside)]
        for dx in (away, -away - width, -width / 2, -width * 0.85, -width * 0.15):
            offsets += [(dx, away + above), (dx, below - away)]
        for dx, dy in offsets:
            left, low = place[0] + dx, place[1] + dy - height * 0.25
            choices.append(((dx, dy), (left - 3, low - 1, left + width + 3, low + height + 1)))
    return choices


def _hidden(box: Box, taken: list[Box], frame: Box) -> float:
    """Return how much of a box is hidden by others, or out of the frame."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    return sum(_shared(box, other) for other in taken) + area - _shared(box, frame)


def _shared(box: Box, other: Box) -> float:
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0


def _color(series: Series) -> str:
    return _OURS[series.style % len(_OURS)]


def _short_labels(series: Sequence[Series]) -> dict[str, str]:
    """Return labels that fit beside a drawing, and stay different."""
    labels = dict.fromkeys(one.label for one in series)
    for longest in (26, 44, 80):
        short = {label: _shorten(one_line(label), longest) for label in labels}
        if len(set(short.values())) == len(short):
            break
    # matplotlib leaves out of a legend what starts with an underscore
    return {label: f"\u200b{text}" if text.startswith("_") else text for label, text in short.items()}


def _shorten(text: str, longest: int) -> str:
    head = longest // 3
    return text if len(text) <= longest else f"{text[:head]}\u2026{text[-(longest - head - 1) :]}"


def _element(svg: str, plot: Plot) -> str:
    """Return the svg element alone, with identifiers that are no other drawing's."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{plot.name}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(one_line(plot.title))}" ', 1)
