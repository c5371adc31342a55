"""Synthesis on a CPU: candidate triplets and judged pairs a second, ours against plain transformers.

    python benchmarks/synthesize.py [--quick] [--json FILE] [--shape t5-base] [--rounds N] [--sentences N] [--tokens N]

`pipeline`: of each sentence an entailment and a contradiction are drawn (p 0.9, top-k 50, temperature 1), and both
pairs are judged. Ours is `Synthesizer` at its defaults: CTranslate2 in int8 where it is installed. The peer is
`generate` of transformers, and its forward with one start token and the whole head, in fp32, in batches of 64 prompts
of similar length, on the same prompts. It has a process of its own: how CTranslate2Engine keeps memory holds for a
whole process. `discriminator`: pairs of sentences are judged; `discriminator_int8` is ours in int8. Weights are
random, and the end token has no weight, so all texts have the same number of tokens. All run in turns; ratios are of
speed, round by round. The extra ct2 makes the difference.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sentences import load_sentences, train_tokenizer
from tercet import Synthesizer
from tercet.encoder.forward.batches import pad
from tercet.encoder.generator import load_generator, save_generator
from tercet.encoder.model.templates import LABELS, TemplateTokens, label_ids
from tercet.evaluation.timing import in_turns, ratio, seconds_of, spread
from tercet.synthesis.settings import Sampling

THREADS, BATCH, NUM_WORDS = 2, 64, 32_128
PAUSE_S = 0.3
"""Between two contestants: threads that wait for more work spin for a while before they sleep."""
RELATIONS = ("entailment", "contradiction")


class Peer:
    """Plain transformers: padded batches, `generate`, and a whole forward for the first step."""

    def __init__(self, folder: Path, sampling: Sampling) -> None:
        self.model, self.tokenizer = load_generator(str(folder))
        self.model.eval()
        self.sampling = sampling
        self.generating = TemplateTokens(self.tokenizer, max_tokens=96)
        self.judging = TemplateTokens(self.tokenizer, max_tokens=128)
        self.labels = label_ids(self.tokenizer)

    @torch.inference_mode()
    def generate(self, texts: list[str], relation: str) -> list[str]:
        """Write a sentence of each text."""
        rows = self.generating(relation, texts)
        written: list[list[int]] = [[]] * len(rows)
        for places, ids, mask in self._batches(rows):
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                top_p=self.sampling.top_p,
                top_k=self.sampling.top_k,
                temperature=self.sampling.temperature,
                max_new_tokens=self.sampling.max_new_tokens,
            )
            for place, row in zip(places, output[:, 1:].tolist(), strict=True):
                written[place] = row
        if {len(row) for row in written} != {self.sampling.max_new_tokens}:
            raise SystemExit("transformers wrote texts of other lengths")
        return list(self.tokenizer.batch_decode(written, skip_special_tokens=True))

    @torch.inference_mode()
    def score(self, premises: list[str], hypotheses: list[str]) -> Any:
        """Judge pairs."""
        rows = self.judging("discrimination", premises, hypotheses)
        found = np.empty(len(rows), np.float32)
        for places, ids, mask in self._batches(rows):
            start = torch.zeros(len(places), 1, dtype=torch.long)
            logits = self.model(input_ids=ids, attention_mask=mask, decoder_input_ids=start).logits[:, 0]
            found[places] = logits[:, self.labels].softmax(1)[:, 0].numpy()
        return found

    def _batches(self, rows: list[list[int]]) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        for first in range(0, len(order), BATCH):
            places = order[first : first + BATCH]
            yield places, *pad([rows[i] for i in places], pad_id=0)


class Ours:
    """The Synthesizer at its defaults, or at another precision."""

    def __init__(self, folder: Path, sampling: Sampling, precision: str = "auto") -> None:
        self.synthesizer = Synthesizer.load(folder, device="cpu", precision=precision)
        self.sampling = sampling
        self.score = self.synthesizer.score

    def generate(self, texts: list[str], relation: Any) -> list[str]:
        """Write a sentence of each text."""
        found = self.synthesizer.generate(texts, relation=relation, sampling=self.sampling)
        return [samples[0] for samples in found]

    def check_lengths(self, texts: list[str]) -> None:
        """End where a text has another number of tokens than the others."""
        rows = self.synthesizer._tokens("entailment", texts)
        found = self.synthesizer._engine(rows, self.sampling, num_samples=1, seed=0)
        if {len(ids) for samples in found for ids in samples} != {self.sampling.max_new_tokens}:
            raise SystemExit("texts have different lengths")


class Apart:
    """The peer in a process of its own, which makes it once."""

    made: Peer

    def __init__(self, *args: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, mp_context=spawn, initializer=self._make, initargs=args)

    def generate(self, texts: list[str], relation: str) -> list[str]:
        """Write a sentence of each text."""
        return self._process.submit(self._call, "generate", texts, relation).result()

    def score(self, premises: list[str], hypotheses: list[str]) -> Any:
        """Judge pairs."""
        return self._process.submit(self._call, "score", premises, hypotheses).result()

    @classmethod
    def _make(cls, *args: Any) -> None:
        torch.set_num_threads(THREADS)
        torch.manual_seed(0)
        cls.made = Peer(*args)

    @classmethod
    def _call(cls, name: str, *args: Any) -> Any:
        return getattr(cls.made, name)(*args)


def pipeline(contestant: Apart | Ours, texts: list[str]) -> None:
    """Draw a candidate triplet of each text, and judge both of its pairs."""
    for relation in RELATIONS:
        contestant.score(texts, contestant.generate(texts, relation))


def build(shape: str, folder: Path) -> None:
    """Write a random model of a shape, which never ends a text by itself."""
    train_tokenizer(num_words=NUM_WORDS, words=LABELS).save_pretrained(folder / "tokenizer")
    model, tokenizer = load_generator(f"random:{shape}", tokenizer=folder / "tokenizer")
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.eos_token_id] = 0
        model.lm_head.weight[tokenizer.eos_token_id] = 0
    save_generator(model, tokenizer, folder / "model")


def race(folder: Path, texts: list[str], sampling: Sampling, *, shape: str, num_rounds: int) -> dict[str, Any]:
    """Time all in turns."""
    peer, ours, int8 = Apart(folder, sampling), Ours(folder, sampling), Ours(folder, sampling, "int8")
    ours.check_lengths(texts[:4])
    pairs = [*texts, *texts], [*texts[1:], *texts]
    pairs = pairs[0][: len(pairs[1])], pairs[1]
    wanted = peer.score(*pairs)
    errors = {who: float(np.abs(other.score(*pairs) - wanted).max()) for who, other in (("auto", ours), ("int8", int8))}
    works: dict[str, Callable[[], object]] = {
        "peer_pipeline": lambda: pipeline(peer, texts),
        "pipeline": lambda: pipeline(ours, texts),
        "peer_discriminator": lambda: peer.score(*pairs),
        "discriminator": lambda: ours.score(*pairs),
        "discriminator_int8": lambda: int8.score(*pairs),
    }
    for contestant in (peer, ours):
        pipeline(contestant, texts[:4])  # warms up

    def timed(work: Callable[[], object]) -> float:
        time.sleep(PAUSE_S)
        return seconds_of(work)

    seconds: dict[str, list[float]] = {who: [] for who in works}
    turns = {who: lambda work=work: timed(work) for who, work in works.items()}
    for number, found in enumerate(in_turns(turns, num_rounds=num_rounds), start=1):
        for who, took in found.items():
            seconds[who].append(took)
        print(f"round {number}, seconds: " + ", ".join(f"{who} {took:.2f}" for who, took in found.items()), flush=True)
    peers = {"pipeline": "peer_pipeline", "discriminator": "peer_discriminator"}
    return {
        "ratios": {
            f"{shape}/{who}": ratio(seconds[peers[who.partition("_")[0]]], seconds[who])
            for who in works
            if not who.startswith("peer")
        },
        "triplets_per_s": {
            who: spread([len(texts) / s for s in seconds[who]]) for who in ("peer_pipeline", "pipeline")
        },
        "pairs_per_s": {
            who: spread([len(pairs[1]) / s for s in seconds[who]]) for who in works if "discriminator" in who
        },
        "largest_error": errors,
        "seconds": seconds,
    }


def main() -> None:
    """Parse the options, run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sentences and rounds: within two minutes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--shape", default="t5-base")
    parser.add_argument("--rounds", type=int, help="5, with --quick 2")
    parser.add_argument("--sentences", type=int, help="128, with --quick 24")
    parser.add_argument("--tokens", type=int, default=24, help="how many are written of each text")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    texts, source = load_sentences(options.sentences or (24 if options.quick else 128))
    num_rounds = options.rounds or (2 if options.quick else 5)
    print(f"sentences: {len(texts)}, {source}; {options.tokens} new tokens, {THREADS} threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # conversions of random weights are of no use to anybody
        build(options.shape, Path(folder))
        sampling = Sampling(max_new_tokens=options.tokens)
        result = race(Path(folder) / "model", texts, sampling, shape=options.shape, num_rounds=num_rounds)
    for name, found in result["ratios"].items():
        print(f"{name}: {found['median']:.2f}x ({found['min']:.2f} to {found['max']:.2f}), {found['rounds']} rounds")
    errors = ", ".join(f"{who} {error:.1e}" for who, error in result["largest_error"].items())
    print(f"largest error of a probability: {errors}")
    if options.json:
        facts = {"sentences": {"num": len(texts), "source": source}, "new_tokens": options.tokens, "threads": THREADS}
        options.json.write_text(json.dumps({**facts, **result}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
