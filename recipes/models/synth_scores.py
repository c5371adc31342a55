"""Measure a generator/discriminator as the card of `mini-synth` states it, and print the tables.

    python recipes/mini/domain.py domain --of help
    python recipes/models/synth_scores.py mini-synth examples/town.txt domain/sentences.txt > scores.md    # minutes

At `TERCET_DATA`: accuracy on SNLI test, entailment against contradiction, beside two baselines (the same model with
another sentence's premise, and a linear classifier of the hypothesis' words alone, trained on the rows that
`mini-synth.yaml` learns from), and the perplexity of hypotheses of dev triplets. For each file: how many triplets and
titles are accepted at the defaults of `tercet synthesize`. Then what it writes of the first sentences of the last
file, not selected.
"""

import argparse
import math
import os
import tempfile
from pathlib import Path
from typing import cast

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import tercet
from tercet import Synthesizer
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import TITLE, NliPair
from tercet.encoder.generator import load_generator
from tercet.storage.choices import Strategy
from tercet.synthesis.settings import Relation
from tercet.training.objectives.generate import GenerateDiscriminate, GenerateSettings, InferenceRow, pairs_of
from tercet.training.recipe import read_recipe
from tercet.training.stages.synthesizer import SynthesizerStage

RELATIONS: tuple[Relation, ...] = ("entailment", "contradiction", "title")
STRATEGIES: tuple[Strategy, ...] = ("generate", "title")
NUM_SAMPLES = 50


def snli_test(folder: Path) -> list[NliPair]:
    """Return the pairs that are an entailment or a contradiction."""
    columns = [(folder / f"{name}.test").read_text(encoding="utf-8").splitlines() for name in ("s1", "s2", "labels")]
    rows = zip(*([cell.strip() for cell in column] for column in columns), strict=True)
    return [NliPair(first, second, label) for first, second, label in rows if label in ("entailment", "contradiction")]


def learned_from(recipe: Path) -> list[NliPair]:
    """Return the NLI pairs that the recipe's last stage learns from."""
    settings = cast("SynthesizerStage", read_recipe(recipe).stages[-1].settings)
    files = [source for source in settings.rows.sources if source.kind != "titles"]
    rows = open_rows(settings.rows.model_copy(update={"sources": files}), kind="inference")
    return [pair for row in rows for pair in pairs_of(cast("InferenceRow", row)) if pair.label != TITLE]


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


def perplexity(model: str, triplets: Path) -> float:
    """Return the perplexity of what is to be written of dev triplets."""
    objective = GenerateDiscriminate(*load_generator(model), GenerateSettings())
    pairs = [pair for row in open_rows(triplets, kind="inference") for pair in pairs_of(cast("InferenceRow", row))]
    return math.exp(objective.mean_loss(objective.generation(pairs)))


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("sentences", type=Path, nargs="+")
    args = parser.parse_args()
    synthesizer, data = Synthesizer.load(args.model), Path(os.environ["TERCET_DATA"])
    pairs = snli_test(data / "eval" / "snli")
    print(f"| what is read of {len(pairs):,} pairs | accuracy |\n|---|---|")
    learned = learned_from(Path(__file__).parent / "mini-synth.yaml")
    for name, accuracy in accuracies(synthesizer, pairs, learned).items():
        print(f"| {name} | {accuracy:.2f} |")
    print(f"\nPerplexity of dev hypotheses: {perplexity(args.model, data / 'train' / 'nli_triplets_dev.tsv'):.2f}\n")
    for file in args.sentences:
        for strategy in STRATEGIES:
            with tempfile.TemporaryDirectory() as out:
                made = tercet.synthesize(file, out, model=args.model, strategy=strategy)
                tally = made.audit["filters"]
                dropped = {rule: found["num"] for rule, found in tally["dropped"].items()}
                print(f"{file}, {strategy}: {tally['num_kept']:,} of {tally['num']:,} accepted; dropped: {dropped}")
    texts = args.sentences[-1].read_text(encoding="utf-8").splitlines()[:NUM_SAMPLES]
    for relation in RELATIONS:
        written = [samples[0] for samples in synthesizer.generate(texts, relation=relation)]
        print(f"\n| sentence | {relation} | P(true) |\n|---|---|---|")
        for text, sample, probability in zip(texts, written, synthesizer.score(texts, written), strict=True):
            print(f"| {text} | {sample} | {probability:.2f} |")


if __name__ == "__main__":
    main()
