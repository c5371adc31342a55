"""The papers' averages against model size, and ours: Sentence-T5, Figure 1."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tercet.evaluation.published import AVERAGES, Cell, load_tables
from tercet.reporting.overview import num_parameters
from tercet.reporting.plots import Plan, Plot, Points, Series
from tercet.reporting.results import Run

# True numbers of parameters by size, without and with a decoder; Sentence-T5, Table 4 prints some of them rounded.
_ENCODER = {"small": 35.3e6, "base": 110e6, "large": 335e6, "3B": 1.24e9, "11B": 4.86e9}
_ENCODER_DECODER = {"small": 60.5e6, "base": 222.9e6, "large": 737.7e6, "3B": 2.85e9, "11B": 11.3e9}


@dataclass(frozen=True)
class _Published:
    """A line of published averages: rows of one model in several sizes."""

    label: str
    sizes: dict[str, float]
    rows: dict[str, tuple[str, str]]
    """By size: where the row is (the paper's table), and its label there."""
    data: str | None = None
    """The fine-tuning data that the row must name."""


def _sentence_t5(label: str, sizes: dict[str, float], data: str) -> _Published:
    rows = {"base": ("Sentence-T5, Table", label)}
    rows |= {
        size: ("Sentence-T5, Table 5", f"{label} ({size.replace('large', 'Large')})") for size in ("large", "3B", "11B")
    }
    return _Published(f"{label}, {data}", sizes, rows, data)


_LINES = (
    _sentence_t5("ST5-Enc mean", _ENCODER, "NLI"),
    _sentence_t5("ST5-Enc mean", _ENCODER, "CQA+NLI"),
    _sentence_t5("ST5-EncDec first", _ENCODER_DECODER, "NLI"),
    _Published(
        "GenSE", _ENCODER_DECODER, {"small": ("GenSE, Table 5", "GenSE-Small"), "base": ("GenSE, Table 2", "GenSE")}
    ),
    _Published("GenSE+", _ENCODER_DECODER, {"base": ("GenSE, Table 2", "GenSE+")}),
)


def scaling(runs: Sequence[Run]) -> Iterator[Plan]:
    """Plan the averages against the number of parameters, where a run has both."""
    plots = []
    for group, title, metric in (
        ("transfer", "Transfer", "mean accuracy x 100"),
        ("sts", "STS", "mean Spearman x 100"),
    ):
        ours = []
        for i, run in enumerate(runs):
            size, (value, num) = num_parameters(run), run.average(AVERAGES[group])
            if size and value is not None and num == len(AVERAGES[group]):
                ours.append(Series(run.label, ((size, value),), style=i, line=False, named=True))
        if ours:
            lines = [(line.label, _published_points(line, group)) for line in _LINES]
            published = [
                Series(label, points, published=True, style=i) for i, (label, points) in enumerate(lines) if points
            ]
            plots.append(
                Plot(
                    f"scaling-{group}",
                    f"{title}: mean of seven tasks",
                    "number of parameters",
                    metric,
                    (*published, *ours),
                    log_x=True,
                    counts_x=True,
                )
            )
    if plots:
        yield Plan(
            "Scaling",
            "Averages against the number of parameters, as in Sentence-T5, Figure 1. Published points are averages of "
            "fine-tuned models from the tables, at their true number of parameters; ours are runs that have all seven "
            "tasks and whose size is known.",
            tuple(plots),
        )


def _published_points(line: _Published, group: str) -> Points:
    points = []
    for size, (source, label) in line.rows.items():
        cells = (
            c for table in load_tables() if table.source.startswith(source) for row in table.rows for c in row.cells
        )
        cell = next((c for c in cells if _is(c, label, group, line.data)), None)
        if cell is not None and cell.value is not None:
            points.append((line.sizes[size], cell.value))
    return tuple(points)


def _is(cell: Cell, label: str, group: str, data: str | None) -> bool:
    return (cell.row, cell.group) == (label, group) and data in (None, cell.details.get("fine-tune data"))
