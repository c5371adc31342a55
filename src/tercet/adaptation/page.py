"""The report of an adaptation, before it is written as HTML or Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tercet.adaptation.balance import MOST_LOST
from tercet.adaptation.findings import Findings, Learned, Measure
from tercet.adaptation.neighbours import Example, Neighbour
from tercet.adaptation.picture import Cosines, Map
from tercet.reporting.document import (
    Bar,
    Bars,
    Block,
    Cell,
    Chart,
    Columns,
    Details,
    Document,
    Facts,
    Heading,
    Items,
    Panels,
    Row,
    Table,
    Text,
    Verdict,
)
from tercet.reporting.shapes import Scale, axis, difference, histogram, remaining, scatter

_RULES = {
    "unreadable": "told of in run/candidates",
    "empty": "nothing was written",
    "short": "too few words",
    "long": "too many words",
    "language": "another language",
    "label": "judged to be the opposite",
    "alpha": "not sure enough",
    "contained": "one is a part of the other",
    "same": "both texts are one",
    "lost": "the title does not find its text",
    "leak": "stands in a file of --eval",
    "duplicate": "was there before",
}
"""What rules drop, in a few words."""

_SHAPE = 4 / 3
"""How wide the map is, for its height; the style sheet says the same."""

_NUM_SHOWN = 3
"""So many samples are not folded away."""


def document_of(findings: Findings, times_s: Mapping[str, float]) -> Document:
    """Return the report: what was kept, before and after, neighbours, what was learned from, how it was made."""
    headline, _, reason = findings.verdict.partition(". ")
    blocks: list[Block] = [Verdict(f"{headline}.", reason, _outcome(findings))]
    if findings.warnings:
        blocks.append(Items(tuple(findings.warnings)))
    blocks += [Heading("Before and after"), *_measures(findings)]
    if findings.cosines is not None:
        blocks += [Heading("Matching and other pairs"), *_cosines(*findings.cosines)]
    if findings.map is not None:
        blocks += [Heading("The corpus as a map"), *_map(findings.map)]
    blocks += [Heading("Nearest neighbours"), *_neighbours(findings)]
    blocks += [Heading("What was learned from"), *_learned(findings)]
    blocks += [Heading("How it was made"), *_making(findings, times_s)]
    return Document("Adapted encoder", blocks)


def _outcome(findings: Findings) -> int:
    if findings.is_better:
        return 1
    is_worse = findings.domain is not None and findings.domain.high < 0
    return -1 if is_worse or findings.general.gain < -MOST_LOST else 0


def _measures(findings: Findings) -> list[Block]:
    return [
        _bars(findings.measures),
        Text(
            "The adapted encoder is kept where the interval of the difference on your own rows (or, without any, on "
            f"held-out texts) is above zero and general sentences lose at most {MOST_LOST:g} points. MRR: a part of a "
            "text looks for the rest of it among at most 500 texts; 100 means that it is always the nearest. Lines are "
            "95% intervals of the difference, from a paired bootstrap over what was scored."
        ),
    ]


def _bars(measures: Sequence[Measure]) -> Bars:
    scale = Scale.around(number for measure in measures for number in (measure.gain, measure.low, measure.high))
    bars, rows = [], []
    for measure in measures:
        before, after, gain, interval = measure.texts()
        kind = {1: "better", -1: "worse"}.get(measure.sign, "even")
        about = f"{measure.metric} of {measure.num:,}"
        drawn = difference(scale, measure.gain, (measure.low, measure.high), kind)
        bars.append(Bar(drawn, measure.name, f"{about}: {before} \u2192 {after}", gain, interval, measure.sign))
        cells = (
            Cell(measure.name, under=about),
            Cell(before),
            Cell(after),
            Cell(gain, sign=measure.sign),
            Cell(interval),
        )
        rows.append(Row(cells, "ours" if measure.group == "own" else "plain"))
    header = tuple(map(Cell, ("Measured on", "Before", "After", "Difference", "95% interval")))
    return Bars((*bars, Bar(axis(scale))), Table(header, tuple(rows)))


def _cosines(before: Cosines, after: Cosines) -> list[Block]:
    sides = {"Before": before, "After": after}
    used = [
        i
        for i in range(len(before.edges) - 1)
        if any(heights[i] for side in sides.values() for heights in (side.matching, side.others))
    ]
    first, last = used[0], used[-1] + 1
    edges = before.edges[first : last + 1]
    highest = max(share for side in sides.values() for heights in (side.matching, side.others) for share in heights)
    charts, rows = [], []
    for name, side in sides.items():
        shares = [(side.others[first:last], "others"), (side.matching[first:last], "matching")]
        means = f"{side.mean_matching:.2f}", f"{side.mean_others:.2f}"
        label = f"Cosines {name.lower()}: matching pairs have {means[0]} in the mean, others {means[1]}"
        title = f"{name}: {side.told_apart:.1f}% told apart"
        charts.append(Chart(f"cosines-{name.lower()}", title, histogram(shares, edges, highest, label)))
        rows.append(Row(tuple(map(Cell, (name, *means, f"{side.told_apart:.1f}%")))))
    header = tuple(map(Cell, ("", "Mean cosine of matching pairs", "Of other pairs", "Told apart")))
    about = (
        "Parts of held-out texts with the rest of their own text, and with the rest of every other. Told apart: how "
        "often a matching pair is nearer than another one."
    )
    legend = (("matching", "matching pairs"), ("others", "other pairs"))
    return [Text(about), Panels(tuple(charts), Table(header, tuple(rows)), legend)]


def _map(drawn: Map) -> list[Block]:
    reach = max(max(abs(x), abs(y) * _SHAPE) for x, y in (*drawn.before, *drawn.after)) * 1.04 or 1.0
    limits = Scale(-reach, reach), Scale(-reach / _SHAPE, reach / _SHAPE)
    charts = []
    for name, places, share in zip(("Before", "After"), (drawn.before, drawn.after), drawn.shares, strict=True):
        label = f"A map of {len(places):,} texts {name.lower()}"
        title = f"{name}: {share:.0%} of the variance"
        charts.append(Chart(f"map-{name.lower()}", title, scatter(places, drawn.clusters, drawn.texts, limits, label)))
    numbers = range(len(drawn.names))
    legend = tuple((f"c{number}", f"{number + 1}: {drawn.names[number]}") for number in numbers)
    rows = [Row((Cell(f"{n + 1}"), Cell(drawn.names[n]), Cell(f"{drawn.clusters.count(n):,}"))) for n in numbers]
    table = Table(tuple(map(Cell, ("Cluster", "Telling words", "Texts"))), tuple(rows), num_text=2)
    about = (
        f"{len(drawn.texts):,} texts in the plane where their clusters differ most. Both maps have the same scale and "
        "the same colours: those of the clusters before. Numbers stand in the middle of their cluster; the words are "
        "those that it has more of than the others. A plane shows little of a space, so read it for a first look."
    )
    return [Text(about), Panels(tuple(charts), table, legend)]


def _neighbours(findings: Findings) -> list[Block]:
    about = (
        f"Of {len(findings.examples)} sentences from different parts of the corpus, among {findings.num_pool:,} of its "
        "sentences, with their cosines. Gone and new: only one of the two encoders has it here. Arrows: places up or "
        "down."
    )
    cards = tuple((Heading(example.query, level=4), _pairs_of(example)) for example in findings.examples)
    return [Text(about), Columns(cards)]


def _pairs_of(example: Example) -> Table:
    places = {neighbour.text: place for place, neighbour in enumerate(example.before)}
    rows = []
    for place, (old, new) in enumerate(zip(example.before, example.after, strict=True)):
        up = 0 if new.moved else places[new.text] - place
        arrow = "" if up == 0 else f"\u2191{up}" if up > 0 else f"\u2193{-up}"
        moved = "new" if new.moved else arrow
        rows.append(Row((_neighbour(old, "gone" if old.moved else ""), _neighbour(new, moved))))
    return Table((Cell("Before"), Cell("After")), tuple(rows), num_text=2)


def _neighbour(neighbour: Neighbour, tag: str) -> Cell:
    return Cell(neighbour.text, under=f"{neighbour.score:.2f}", tag=tag)


def _learned(findings: Findings) -> list[Block]:
    columns: list[tuple[Block, ...]] = []
    for learned in findings.learned:
        samples = [(f"{i}.", tuple(_sample(sample))) for i, sample in enumerate(learned.samples, start=1)]
        shown, folded = samples[:_NUM_SHOWN], samples[_NUM_SHOWN:]
        more = (Details(f"{len(folded)} more", (Facts(tuple(folded)),)),) if folded else ()
        columns.append((Heading(f"{learned.name}: {learned.num:,}", level=4), _funnel(learned)))
        if shown:
            columns.append((Heading(f"Some {learned.name}", level=4), Facts(tuple(shown)), *more))
    return [Columns(tuple(columns))]


def _sample(sample: Mapping[str, Any]) -> Iterable[str]:
    def sure(key: str, *, of: float = 0.0) -> str:
        return "" if sample.get(key) is None else f" ({abs(of - sample[key]):.2f})"

    yield sample["anchor"]
    yield f"finds{sure('positive_true')}: {sample['positive']}"
    if sample.get("negative") is not None:
        yield f"not{sure('negative_true', of=1.0)}: {sample['negative']}"


def _funnel(learned: Learned) -> Bars:
    """Return what is left after each rule, first of the texts and then of what was written for them."""
    bars, rows = [], []

    def add(name: str, num: int, left: int, total: int, *, is_drop: bool = True) -> None:
        share = f"{num / total:.1%}" if total else ""
        under = _RULES.get(name, "")
        drawn = remaining(left, left + num if is_drop else left, total)
        bars.append(Bar(drawn, name, under, f"\u2212{num:,}" if is_drop else f"{num:,}", share if is_drop else ""))
        rows.append(Row((Cell(name, under=under), Cell(f"{-num if is_drop else num:,}"), Cell(share))))

    for path, source in learned.sentences["sources"].items():
        read, bad = source["num_read"], source["num_bad"]
        add(f"rows of {path}", read, read, read, is_drop=False)
        if bad:
            add("unreadable", bad, read - bad, read)
    parts = [("texts", learned.sentences, "texts used")]
    parts += [] if learned.filters is None else [("candidates", learned.filters, "accepted")]
    for title, tally, kept in parts:
        left = total = tally["num"]
        add(title, total, total, total, is_drop=False)
        for name, dropped in tally["dropped"].items():
            if dropped["num"]:
                left -= dropped["num"]
                add(name, dropped["num"], left, total)
        add(kept, tally["num_kept"], tally["num_kept"], total, is_drop=False)
    return Bars(tuple(bars), Table(tuple(map(Cell, ("", "Number", "Share"))), tuple(rows)))


def _making(findings: Findings, times_s: Mapping[str, float]) -> list[Block]:
    num = findings.num_steps
    facts = Facts(
        (
            ("Command", (findings.command,)),
            ("Learning", ("no training: directions are weighted" if num is None else f"{num:,} steps of training",)),
            ("Time", tuple(f"{part}: {seconds:,.0f} s" for part, seconds in times_s.items())),
            ("Recipe", ("run/recipe.yaml, which tercet train runs again",)),
        )
    )
    settings: list[tuple[Block, ...]] = []
    for stage in findings.recipe.stages:
        rows = tuple(Row((Cell(name), Cell(value))) for name, value in _flat(stage.dump()))
        settings.append((Table((Cell(stage.name), Cell("Setting")), rows, num_text=2),))
    return [facts, Columns(tuple(settings))]


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif value not in (None, []):
            yield f"{above}{name}", _inline(value)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, text in _flat(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " + ".join(map(_inline, value)) if any(isinstance(one, Mapping) for one in value) else str([*value])
    return str(value).lower() if isinstance(value, bool) else str(value)
