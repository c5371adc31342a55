"""What a generator/discriminator knows: its judgement on SNLI's test pairs beside two baselines, and what it writes.

    python benchmarks/mini_synth.py [--model mini-synth] [--json FILE] [--samples FILE.md]

Accuracy is of entailment against contradiction on the test pairs of SNLI at TERCET_DATA, with P(true) above one half
for entailment. `hypothesis_only` is a logistic regression on counts of the hypothesis's words and word pairs, trained
on the labelled pairs at TERCET_DATA (needs the extra sklearn). `shuffled_premise` judges every hypothesis beside
another test pair's premise. The samples are of the first 50 sentences of examples/kitchen.txt, one draw for each
template, not selected. Acceptance is of two draws for every sentence of that file with at least five words, at the
defaults of `tercet synthesize`.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tercet import Synthesizer
from tercet.rows.kinds import LabelledPair
from tercet.rows.sources import open_rows
from tercet.synthesis.corpus import synthesize
from tercet.synthesis.settings import SynthesisSettings

SENTENCES = Path(__file__).parent.parent / "examples" / "kitchen.txt"
LABELS = {"entailment": True, "contradiction": False}
NUM_SHOWN = 50


def read_snli(folder: Path) -> tuple[list[str], list[str], Any]:
    """Return the premises, hypotheses and truths of SNLI's test pairs that are not neutral."""
    columns = [(folder / f"{name}.test").read_text(encoding="utf-8").splitlines() for name in ("s1", "s2", "labels")]
    kept = [row for row in zip(*columns, strict=True) if row[2] in LABELS]
    premises, hypotheses, labels = zip(*kept, strict=True)
    return list(premises), list(hypotheses), np.array([LABELS[label] for label in labels])


def judge(synthesizer: Synthesizer, data: Path) -> dict[str, float]:
    """Return accuracies in percent."""
    premises, hypotheses, truths = read_snli(data / "eval" / "snli")
    others = [premises[i] for i in np.random.default_rng(0).permutation(len(premises))]
    rows = open_rows(data / "train" / "nli_pairs.tsv", kind="nli")
    known = [row for row in rows if isinstance(row, LabelledPair) and row.label in LABELS]
    words = make_pipeline(CountVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=1_000))
    words.fit([pair.hypothesis for pair in known], [LABELS[pair.label] for pair in known])

    def accuracy(answers: Any) -> float:
        return 100 * float(np.mean(answers == truths))

    return {
        "discriminator": accuracy(synthesizer.score(premises, hypotheses) > 0.5),
        "hypothesis_only": accuracy(words.predict(hypotheses)),
        "shuffled_premise": accuracy(synthesizer.score(others, hypotheses) > 0.5),
        "most_frequent_label": 100 * float(max(truths.mean(), 1 - truths.mean())),
        "num_pairs": len(truths),
    }


def write_samples(synthesizer: Synthesizer, path: Path) -> None:
    """Write what follows from, and what contradicts, the first sentences, as a table with probabilities."""
    texts = SENTENCES.read_text(encoding="utf-8").splitlines()[:NUM_SHOWN]
    lines = ["| sentence | entailment | P(true) | contradiction | P(false) |", "|---|---|---|---|---|"]
    entailed = [samples[0] for samples in synthesizer.generate(texts, relation="entailment")]
    denied = [samples[0] for samples in synthesizer.generate(texts, relation="contradiction")]
    trues, falses = synthesizer.score(texts, entailed), 1 - synthesizer.score(texts, denied)
    for text, positive, true, negative, false in zip(texts, entailed, trues, denied, falses, strict=True):
        lines.append(f"| {text} | {positive} | {true:.2f} | {negative} | {false:.2f} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def accept(model: str) -> dict[str, int]:
    """Return how many candidates two draws for each sentence give, and how many of them are accepted."""
    settings = SynthesisSettings(sentences=[{"path": str(SENTENCES)}], model=model, min_premise_words=5, num_samples=2)
    with tempfile.TemporaryDirectory() as folder:
        audit = synthesize(settings, Path(folder) / "corpus")
    return {"num_candidates": audit["filters"]["num"], "num_accepted": audit["num_triplets"]}


def main() -> None:
    """Measure, and print or write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="mini-synth", help="an embedded name, a folder or a hub id")
    parser.add_argument("--data", type=Path, default=os.environ.get("TERCET_DATA"), help="$TERCET_DATA where not given")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--samples", type=Path, help="write what it wrote to this file, as Markdown")
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data: say where the data is, or set TERCET_DATA")
    synthesizer = Synthesizer.load(options.model, device="cpu")
    result = {"snli_test": judge(synthesizer, Path(options.data)), "kitchen": accept(options.model)}
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.samples:
        write_samples(synthesizer, options.samples)


if __name__ == "__main__":
    main()
