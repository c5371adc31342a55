"""A training step at T5-small shape: ours against sentence-transformers' MultipleNegativesRankingLoss, and its memory.

    python benchmarks/train.py [--quick] [--json FILE]

Both take the same 64 triplets, other ones in every round, from texts to updated weights: tokenise, forward, backward,
AdamW. The weights of both start equal, dropout is 0.1. Where the CPU has bf16, ours runs in it (`precision`: auto), and
the library in fp32 and by bf16 autocast. A CPU without bf16 would emulate it, minutes a step: there, both run in fp32
only, and the JSON says under `not_measured` that the ratio over bf16 is missing.

The peak of memory is that of a process of its own that takes a step, with 512 triplets and with 2048 pairs. Rows are
NLI triplets where TERCET_DATA is set, else made-up sentences. The tokenizer is trained on them and filled up to T5's
number of words. Needs the extra st.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from peak import has_bf16
from sentences import load_sentences, train_tokenizer
from tercet import Encoder
from tercet.data.rows.kinds import Triplet
from tercet.evaluation.timing import in_turns, peak_rss_gb, ratio
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.contrast import Contrast, ContrastSettings

SHAPE, NUM_WORDS, BATCH = "t5-small", 32_128, 64
LEARNING_RATE, TEMPERATURE = 1e-4, 0.05
PEAKS = {"512_triplets": (512, 1), "2048_pairs": (2048, 0)}
"""Rows, and hard negatives of each."""

Step = Callable[[list[Triplet]], float]


def load_rows() -> tuple[list[Triplet], str]:
    """Return triplets, and where they are from."""
    data = os.environ.get("TERCET_DATA")
    file = Path(data, "train", "nli_triplets.tsv") if data else None
    if file is None or not file.exists():
        texts, source = load_sentences(15_000)
        return [Triplet(*texts[i : i + 2], (texts[i + 2],)) for i in range(0, len(texts) - 2, 3)], source
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return [Triplet(anchor, positive, (negative,)) for anchor, positive, negative in lines], "NLI triplets"


def fresh_encoder(rows: list[Triplet]) -> Encoder:
    """Return a T5-small sentence encoder with random weights."""
    texts = [text for row in rows for text in (row.anchor, row.positive, *row.negatives)]
    tokenizer = train_tokenizer(texts, num_words=NUM_WORDS)
    return Encoder.load(
        f"random:{SHAPE}", tokenizer=tokenizer, device="cpu", readout="enc-mean", projection=768, max_tokens=64
    )


def our_step(encoder: Encoder) -> Step:
    """Return a function that takes a step of ours."""
    compute = ComputeSettings(precision="auto")
    objective = Contrast(encoder, ContrastSettings(temperature=TEMPERATURE), compute=compute)
    objective.module.train()
    optimizer = torch.optim.AdamW(objective.module.parameters(), lr=LEARNING_RATE, fused=True)

    def step(batch: list[Triplet]) -> float:
        result = objective.step(batch)
        optimizer.step()
        optimizer.zero_grad()
        return result.loss

    return step


def their_step(folder: Path, *, bf16: bool) -> Step:
    """Return a function that takes a step of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(str(folder), device="cpu").train()
    objective = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step(batch: list[Triplet]) -> float:
        columns = zip(*((row.anchor, row.positive, *row.negatives) for row in batch), strict=True)
        features = [model.preprocess(list(column)) for column in columns]
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = objective(features, None)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def race(rows: list[Triplet], num_rounds: int) -> dict[str, Any]:
    """Time the steps of all in turns."""
    encoder = fresh_encoder(rows)
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(Path(folder, "model"))
        steps = {"ours": our_step(encoder), "st_fp32": their_step(Path(folder, "model"), bf16=False)}
        if has_bf16():
            steps["st_bf16"] = their_step(Path(folder, "model"), bf16=True)
    taken = dict.fromkeys(steps, 0)

    def timed(who: str) -> tuple[float, float]:
        batch = rows[taken[who] * BATCH : (taken[who] + 1) * BATCH]
        taken[who] += 1
        start = time.perf_counter()
        loss = steps[who](batch)
        return time.perf_counter() - start, loss

    contestants = {who: lambda who=who: timed(who) for who in steps}
    seconds: dict[str, list[float]] = {who: [] for who in steps}
    for number, found in enumerate(in_turns(contestants, num_rounds=1 + num_rounds)):  # the first warms up
        for who, (step_s, _) in found.items():
            seconds[who] += [step_s] if number else []
        times = ", ".join(f"{who} {step_s:.2f} s (loss {loss:.3f})" for who, (step_s, loss) in found.items())
        print(f"{f'round {number}' if number else 'warm-up'}: {times}", flush=True)
    return {
        "ratios": {f"{SHAPE}/over_{who}": ratio(seconds[who], seconds["ours"]) for who in list(steps)[1:]},
        "not_measured": {} if has_bf16() else {f"{SHAPE}/over_st_bf16": "this CPU has no bf16"},
        "precision": encoder.resolve_precision("auto"),
        "seconds": seconds,
    }


def measure_peak(rows: list[Triplet], name: str) -> dict[str, float]:
    """Take a step with a large batch; to be called in a process that does nothing else."""
    num_rows, num_negatives = PEAKS[name]
    batch = [Triplet(row.anchor, row.positive, row.negatives[:num_negatives]) for row in rows[:num_rows]]
    step = our_step(fresh_encoder(rows))
    step(batch[:8])  # after that, the optimizer's state is there
    start = time.perf_counter()
    step(batch)
    return {"peak_rss_gb": peak_rss_gb(), "seconds_per_step": time.perf_counter() - start}


def peaks(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure each peak in its own process."""
    found: dict[str, dict[str, float]] = {"peak_rss_gb": {}, "seconds_per_step": {}}
    for name in names:
        command = [sys.executable, __file__, "--peak", name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for key, value in json.loads(output.splitlines()[-1]).items():
            found[key][name] = value
        print(
            f"{name}: {found['peak_rss_gb'][name]:.2f} GB, {found['seconds_per_step'][name]:.1f} s a step", flush=True
        )
    return found


def main() -> None:
    """Parse the options, run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, the smaller peak: within two minutes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--peak", choices=PEAKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows, source = load_rows()
    if options.peak:
        print(json.dumps(measure_peak(rows, options.peak)))
        return
    print(f"rows: {source}; {BATCH} triplets a step, {torch.get_num_threads()} threads")
    result = {"rows": source, "threads": torch.get_num_threads(), **race(rows, 3 if options.quick else 9)}
    for name, found in result["ratios"].items():
        print(f"{name}: {found['median']:.2f}x ({found['min']:.2f} to {found['max']:.2f}), {found['rounds']} rounds")
    result |= peaks(list(PEAKS)[:1] if options.quick else list(PEAKS))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
