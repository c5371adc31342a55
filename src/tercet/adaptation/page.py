"""The report of an adaptation, before it is written as HTML or Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from tercet.adaptation.findings import Findings
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
    "leak": "stands in a file of --eval",
    "duplicate": "was there before",
}
"""What rules drop, in a few words."""


def document_of(findings: Findings, times_s: Mapping[str, float]) -> Document:
    """Return the report: what was kept, before and after, neighbours, the triplets, how it was made."""
    blocks: list[Block] = [Text(findings.verdict)]
    if findings.warnings:
        blocks.append(Items(tuple(findings.warnings)))
    blocks += [Heading("Before and after"), *_measures(findings)]
    blocks += [Heading("Nearest neighbours"), *_neighbours(findings)]
    blocks += [Heading("Triplets"), *_triplets(findings)]
    blocks += [Heading("How it was made"), *_making(findings, times_s)]
    return Document("Adapted encoder", blocks)


def _measures(findings: Findings) -> list[Block]:
    header = tuple(map(Cell, ("Measured on", "Before", "After", "Difference")))
    rows = []
    for measure in findings.measures:
        sign = (measure.gain > 0) - (measure.gain < 0)
        cells = [Cell(measure.name, under=f"{measure.metric} of {measure.num:,}")]
        before, after, difference = measure.texts()
        cells += [Cell(before), Cell(after), Cell(difference, sign=sign)]
        rows.append(Row(tuple(cells), "ours" if measure.group == "own" else "plain"))
    return [
        Table(header, tuple(rows)),
        Text(
            "Triplet accuracy: how often a sentence is nearer to what follows from it than to what contradicts it. "
            "The synthetic triplets were written and judged by the synthesizer, for sentences that nothing was "
            "learned from; but they chose the step, so the number after is a little flattered. Alignment (how far a "
            "sentence is from what follows from it) and uniformity (how evenly sentences are spread) are better the "
            "lower they are. General sentences show what was forgotten."
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


def _triplets(findings: Findings) -> list[Block]:
    facts = []
    for number, sample in enumerate(findings.samples, start=1):
        lines = [sample["anchor"], f"follows ({sample['positive_true']:.2f}): {sample['positive']}"]
        if sample.get("negative") is not None:
            lines.append(f"contradicts ({1 - sample['negative_true']:.2f}): {sample['negative']}")
        facts.append((f"{number}.", tuple(lines)))
    num, total = findings.recognised
    return [
        Text("What became of sentences, and of the candidates that were written for them:"),
        _audit(findings.audit),
        Text(
            f"Does the synthesizer know such text? Of {total:,} sentences, {num:,} are the nearest to what follows "
            "from them, by the encoder before."
        ),
        Text("Accepted triplets from all over the corpus, with how sure the synthesizer is:"),
        Facts(tuple(facts)),
    ]


def _audit(audit: dict[str, Any]) -> Table:
    rows = []
    for path, source in audit["sentences"]["sources"].items():
        rows.append(_count(f"rows of {path}", source["num_read"], None))
        if source["num_bad"]:
            rows.append(_count("unreadable", -source["num_bad"], source["num_read"]))
    for title, tally, kept in (
        ("sentences", audit["sentences"], "sentences used"),
        ("candidates", audit["filters"], "triplets accepted"),
    ):
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
                ("Training", (_training(findings),)),
                ("Time", tuple(f"{part}: {seconds:,.0f} s" for part, seconds in times_s.items())),
                ("Recipe", ("run/recipe.yaml, which tercet train runs again",)),
            )
        ),
        Details("All settings", (Facts(tuple(settings)),)),
    ]


def _training(findings: Findings) -> str:
    best = "" if findings.best_step is None else f"; the best on held-out triplets was {findings.best_step:,}"
    return f"{findings.num_steps:,} steps{best}"


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
