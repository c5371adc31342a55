"""Measure a generator/discriminator as the card of `mini-synth` states it, and print the tables.

    python recipes/models/synth_scores.py MODEL examples/town.txt > scores.md    # minutes

Accuracy on SNLI test, entailment against contradiction, at `TERCET_DATA`, beside two baselines: the same model with
another sentence's premise, and a linear classifier of the hypothesis' words alone, trained on the rows that
`mini-synth.yaml` learns from. Then what it writes of the first sentences of a file, not selected.
"""

import argparse
import os
from pathlib import Path
from typing import cast

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tercet import Synthesizer
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import NliPair
from tercet.synthesis.settings import Relation
from tercet.training.objectives.generate import InferenceRow, pairs_of
from tercet.training.recipe import read_recipe
from tercet.training.stages.synthesizer import SynthesizerStage

RELATIONS: tuple[Relation, ...] = ("entailment", "contradiction")
NUM_SAMPLES = 50


def snli_test(folder: Path) -> list[NliPair]:
    """Return the pairs that are an entailment or a contradiction."""
    columns = [(folder / f"{name}.test").read_text(encoding="utf-8").splitlines() for name in ("s1", "s2", "labels")]
    rows = zip(*([cell.strip() for cell in column] for column in columns), strict=True)
    return [NliPair(first, second, label) for first, second, label in rows if label in RELATIONS]


def learned_from(recipe: Path) -> list[NliPair]:
    """Return the pairs that the recipe's last stage learns from."""
    settings = cast("SynthesizerStage", read_recipe(recipe).stages[-1].settings)
    return [pair for row in open_rows(settings.rows, kind="inference") for pair in pairs_of(cast("InferenceRow", row))]


def accuracies(synthesizer: Synthesizer, pairs: list[NliPair], learned: list[NliPair]) -> dict[str, float]:
    """Return the share of pairs that each is right about, in percent."""
    premises, hypotheses = [pair.premise for pair in pairs], [pair.hypothesis for pair in pairs]
    wanted = np.array([pair.label == "entailment" for pair in pairs])
    others = [premises[i] for i in np.random.default_rng(0).permutation(len(premises))]
    words = make_pipeline(CountVectorizer(ngram_range=(1, 2), min_df=2), LogisticRegression(C=0.3, max_iter=1000))
    words.fit([pair.hypothesis for pair in learned], [pair.label == "entailment" for pair in learned])
    said = {
        "premise and hypothesis": synthesizer.score(premises, hypotheses) > 0.5,
        "another sentence's premise": synthesizer.score(others, hypotheses) > 0.5,
        "words and pairs of words of the hypothesis alone, a linear classifier": words.predict(hypotheses),
    }
    return {name: 100 * float(np.mean(answers == wanted)) for name, answers in said.items()}


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("sentences", type=Path)
    args = parser.parse_args()
    synthesizer = Synthesizer.load(args.model)
    pairs = snli_test(Path(os.environ["TERCET_DATA"]) / "eval" / "snli")
    print(f"| what is read of {len(pairs):,} pairs | accuracy |\n|---|---|")
    learned = learned_from(Path(__file__).parent / "mini-synth.yaml")
    for name, accuracy in accuracies(synthesizer, pairs, learned).items():
        print(f"| {name} | {accuracy:.2f} |")
    texts = args.sentences.read_text(encoding="utf-8").splitlines()[:NUM_SAMPLES]
    for relation in RELATIONS:
        written = [samples[0] for samples in synthesizer.generate(texts, relation=relation)]
        print(f"\n| sentence | {relation} | P(true) |\n|---|---|---|")
        for text, sample, probability in zip(texts, written, synthesizer.score(texts, written), strict=True):
            print(f"| {text} | {sample} | {probability:.2f} |")


if __name__ == "__main__":
    main()
