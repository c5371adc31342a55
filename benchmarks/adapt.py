"""What `tercet adapt` gains on domains that the models in the package never saw: documentation in Debian packages.

    python benchmarks/adapt.py [--quick] [--json FILE] [--plan P ...] [--model M] [--packages NAME ...] [--seed N ...]

Up to 500 headings of each package look for their own paragraph among 50 (MAP). The texts to adapt to are these
paragraphs and others of the package, at most 2,000, without headings. The gain is that of what was learned, kept or
not; `verdict` says whether held-out texts alone would have kept it. Needs apt-get; `TERCET_DATA` for STSB-dev;
`--work FOLDER` goes on after a kill. Several plans and seeds take hours.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import py3langid

import tercet
from tercet.adaptation.findings import Measure
from tercet.data.rows.words import as_words

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes" / "models"))
from pages import fetched, in_order, sections

PACKAGES = """
tomcat10-docs gnucash-docs lilypond-doc-html cvs gnunet sbcl-doc gap-doc swi-prolog-doc chicken-bin doxygen-doc
""".split()
NUM_QUERIES, NUM_CANDIDATES, NUM_TEXTS = 500, 50, 2_000


def is_text(text: str) -> bool:
    """Return whether it is a paragraph of English."""
    return 8 <= len(text.split()) <= 120 and text.isascii() and py3langid.classify(text)[0] == "en"


def write_domain(package: str, out: Path, cache: Path) -> None:
    """Write OUT/corpus.txt and OUT/rerank.tsv.

    Raises:
        SystemExit: The package cannot be had.
    """
    folder = fetched(package, cache)
    if folder is None:
        raise SystemExit(f"{package}: apt-get cannot download it. Run apt-get update.")
    parts = sections(package, folder)
    pairs = in_order(
        (title, texts[0]) for title, texts in parts if texts and 2 <= len(title.split()) <= 15 and is_text(texts[0])
    )[:NUM_QUERIES]
    draw, lines = np.random.default_rng(0), ["query\tcandidate\tlabel"]
    for number, (title, body) in enumerate(pairs):
        others = draw.choice(len(pairs) - 1, min(NUM_CANDIDATES, len(pairs)) - 1, replace=False)
        lines += [f"{title}\t{body}\t1", *(f"{title}\t{pairs[i + (i >= number)][1]}\t0" for i in others)]
    bodies = [body for _, body in pairs]
    known = {as_words(body) for body in bodies}
    more = sorted({text for _, texts in parts for text in texts if as_words(text) not in known and is_text(text)})
    random.Random(0).shuffle(more)
    out.mkdir(parents=True, exist_ok=True)
    (out / "corpus.txt").write_text("".join(f"{text}\n" for text in [*bodies, *more][:NUM_TEXTS]), encoding="utf-8")
    (out / "rerank.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def as_json(measure: Measure) -> dict[str, float]:
    """Return a measure's numbers."""
    return {name: round(getattr(measure, name), 2) for name in ("num", "before", "after", "gain", "low", "high")}


def measured(domain: Path, out: Path, *, plan: Any, model: str, seed: int) -> dict[str, Any]:
    """Adapt to a domain, and return the gain on its headings, on held-out texts and on general sentences."""
    own = f"rerank:{domain / 'rerank.tsv'}"
    findings = tercet.adapt(domain / "corpus.txt", out, plan=plan, model=model, evals=[own], seed=seed).findings
    held_out = findings.of("held-out")
    return {
        "headings": as_json(findings.of("own")[0]),
        "held-out": [as_json(measure) for measure in held_out],
        "general": as_json(findings.general),
        "share": findings.share,
        "verdict": bool(held_out) and all(measure.low > 0 for measure in held_out),
    }


def in_words(made: dict[str, Any]) -> str:
    """Return a line about an adaptation."""
    gain, lost = made["headings"], made["general"]["gain"]
    gained = f"{gain['before']:.2f} {gain['gain']:+.2f} ({gain['low']:+.2f} to {gain['high']:+.2f})"
    return f"{gained}, general {lost:+.2f}, held-out texts would keep it: {made['verdict']}"


def main() -> None:
    """Adapt to each domain by each plan, and print the gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one domain, without training")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument("--plan", nargs="+", default=["auto"], help="plans of tercet adapt")
    parser.add_argument("--model", default="mini", help="the start")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="Debian packages with documentation")
    parser.add_argument("--seed", nargs="+", type=int, default=[0], help="seeds")
    parser.add_argument("--work", type=Path, help="where domains and adaptations are kept, to go on after a kill")
    options = parser.parse_args()
    if options.quick:
        options.plan, options.packages = ["reweight"], options.packages[:1]
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        for package in options.packages:
            domain = work / package
            if not (domain / "rerank.tsv").exists():
                write_domain(package, domain, work / "packages")
            for plan in options.plan:
                for seed in options.seed:
                    name = f"{package}/{plan}/{seed}"
                    made = found[name] = measured(
                        domain, work / f"{options.model.replace('/', '-')}-{name.replace('/', '-')}",
                        plan=plan, model=options.model, seed=seed,
                    )  # fmt: skip
                    print(f"{name}: {in_words(made)}", flush=True)
    for plan in options.plan:
        gains = [made["headings"]["gain"] for name, made in found.items() if name.split("/")[1] == plan]
        print(f"{plan}: {np.mean(gains):+.2f} in the mean, {min(gains):+.2f} to {max(gains):+.2f}")
    if options.json:
        options.json.write_text(json.dumps({"model": options.model, "domains": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
