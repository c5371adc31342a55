"""The report of an adaptation, before it is written as HTML or Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tercet.adaptation.balance import MOST_LOST
from tercet.adaptation.findings import Findings, Learned
from tercet.adaptation.neighbours import Example, Neighbour
from tercet.reporting.document import Block, Cell, Details, Document, Facts, Heading, Items, Row, Table, Text

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


def document_of(findings: Findings, times_s: Mapping[str, float]) -> Document:
    """Return the report: what was kept, before and after, neighbours, what was learned from, how it was made."""
    blocks: list[Block] = [Text(findings.verdict)]
    if findings.warnings:
        blocks.append(Items(tuple(findings.warnings)))
    blocks += [Heading("Before and after"), *_measures(findings)]
    blocks += [Heading("Nearest neighbours"), *_neighbours(findings)]
    blocks += [Heading("What was learned from"), *_learned(findings)]
    blocks += [Heading("How it was made"), *_making(findings, times_s)]
    return Document("Adapted encoder", blocks)


def _measures(findings: Findings) -> list[Block]:
    header = tuple(map(Cell, ("Measured on", "Before", "After", "Difference", "95% interval")))
    rows = []
    for measure in findings.measures:
        before, after, difference, interval = measure.texts()
        cells = [Cell(measure.name, under=f"{measure.metric} of {measure.num:,}"), Cell(before), Cell(after)]
        cells += [Cell(difference, sign=measure.sign), Cell(interval)]
        rows.append(Row(tuple(cells), "ours" if measure.group == "own" else "plain"))
    return [
        Table(header, tuple(rows)),
        Text(
            "The adapted encoder is kept where the interval of the difference on your own rows (or, without any, on "
            f"held-out texts) is above zero and general sentences lose at most {MOST_LOST:g} points. MRR: a part of a "
            "text looks for the rest of it among 500 texts; 100 means that it is always the nearest. Intervals come "
            "from a paired bootstrap over what was scored."
        ),
    ]


def _neighbours(findings: Findings) -> list[Block]:
    blocks: list[Block] = [
        Text(
            f"Of {len(findings.examples)} sentences from different parts of the corpus, among {findings.num_pool:,} of "
            "its sentences, with their cosines. Bold: only one of the two encoders has it here."
        )
    ]
    for example in findings.examples:
        blocks += [Heading(example.query, level=4), _pairs_of(example)]
    return blocks


def _pairs_of(example: Example) -> Table:
    rows = [Row((_neighbour(old), _neighbour(new))) for old, new in zip(example.before, example.after, strict=True)]
    return Table((Cell("Before"), Cell("After")), tuple(rows), num_text=2)


def _neighbour(neighbour: Neighbour) -> Cell:
    return Cell(neighbour.text, best=neighbour.moved, under=f"{neighbour.score:.2f}")


def _learned(findings: Findings) -> list[Block]:
    blocks: list[Block] = []
    for learned in findings.learned:
        blocks += [Heading(f"{learned.name}: {learned.num:,}", level=4), _audit(learned)]
        lines = [(f"{number}.", tuple(_sample(sample))) for number, sample in enumerate(learned.samples, start=1)]
        blocks.append(Facts(tuple(lines)))
    return blocks


def _sample(sample: Mapping[str, Any]) -> Iterable[str]:
    def sure(key: str, *, of: float = 0.0) -> str:
        return "" if sample.get(key) is None else f" ({abs(of - sample[key]):.2f})"

    yield sample["anchor"]
    yield f"finds{sure('positive_true')}: {sample['positive']}"
    if sample.get("negative") is not None:
        yield f"not{sure('negative_true', of=1.0)}: {sample['negative']}"


def _audit(learned: Learned) -> Table:
    rows = []
    sentences = learned.sentences
    for path, source in sentences["sources"].items():
        rows.append(_count(f"rows of {path}", source["num_read"], None))
        if source["num_bad"]:
            rows.append(_count("unreadable", -source["num_bad"], source["num_read"]))
    parts = [("texts", sentences, "texts used")]
    parts += [] if learned.filters is None else [("candidates", learned.filters, "accepted")]
    for title, tally, kept in parts:
        rows.append(_count(title, tally["num"], None))
        rows += [_count(name, -dropped["num"], tally["num"]) for name, dropped in tally["dropped"].items()]
        rows.append(_count(kept, tally["num_kept"], tally["num"], kind="ours"))
    return Table(tuple(map(Cell, ("", "Number", "Share"))), tuple(rows))


def _count(name: str, num: int, total: int | None, *, kind: Literal["plain", "ours"] = "plain") -> Row:
    share = Cell(f"{abs(num) / total:.1%}") if total else Cell("")
    return Row((Cell(name, under=_RULES.get(name, "")), Cell(f"{num:,}"), share), kind)


def _making(findings: Findings, times_s: Mapping[str, float]) -> list[Block]:
    recipe = findings.recipe
    settings = [(stage.name, (", ".join(_plain(stage.dump())),)) for stage in recipe.stages]
    return [
        Facts(
            (
                ("Command", (findings.command,)),
                ("Training", (f"{findings.num_steps:,} steps",)),
                ("Time", tuple(f"{part}: {seconds:,.0f} s" for part, seconds in times_s.items())),
                ("Recipe", ("run/recipe.yaml, which tercet train runs again",)),
            )
        ),
        Details("All settings", (Facts(tuple(settings)),)),
    ]


def _plain(settings: Mapping[str, Any]) -> Iterable[str]:
    for name, value in settings.items():
        if value not in (None, [], {}):
            yield f"{name} {_inline(value)}"


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({', '.join(_plain(value))})"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_inline, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
