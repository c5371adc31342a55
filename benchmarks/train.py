"""A training step at T5-small shape: ours against sentence-transformers' MultipleNegativesRankingLoss, and its memory.

    python benchmarks/train.py [--quick] [--json FILE]

Both take the same 64 triplets, other ones in every round, from texts to updated weights: tokenise, forward, backward,
AdamW. The weights of both start equal, dropout is 0.1. Where the CPU has bf16, ours runs in it (`precision`: auto), and
the library in fp32 and by bf16 autocast. A CPU without bf16 would emulate it, minutes a step: there, both run in fp32
only, and the JSON says under `not_measured` that the ratio over bf16 is missing.

The peak of memory is that of a process of its own that takes a step, with 512 triplets and with 2048 pairs. With
TERCET_DATA set, rows are NLI triplets; otherwise they are made of random words, with as many words a text as NLI has.
The tokenizer is trained on the rows and filled up to T5's vocabulary. Needs the extra st.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import T5Tokenizer

from tercet import Encoder
from tercet.objectives.compute import ComputeSettings
from tercet.objectives.contrast import Contrast, ContrastSettings
from tercet.rows.kinds import Triplet

SHAPE, NUM_WORDS, BATCH = "t5-small", 32_128, 64
SEED, LEARNING_RATE, TEMPERATURE = 0, 1e-4, 0.05
PEAKS = {"512_triplets": (512, 1), "2048_pairs": (2048, 0)}
"""Rows and hard negatives a row."""


def load_rows() -> tuple[str, list[Triplet]]:
    """NLI triplets, or generated ones."""
    if "TERCET_DATA" in os.environ:
        file = Path(os.environ["TERCET_DATA"]) / "train" / "nli_triplets.tsv"
        lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
        return "NLI", [Triplet(anchor, positive, (negative,)) for anchor, positive, negative in lines]
    rng = random.Random(SEED)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 8))) for _ in range(8000)]

    def text(mean: int) -> str:
        return " ".join(rng.choices(words, k=max(3, round(rng.gammavariate(4, mean / 4)))))

    return "generated", [Triplet(text(14), text(8), (text(8),)) for _ in range(4000)]


def train_tokenizer(rows: list[Triplet]) -> T5Tokenizer:
    """A tokenizer of the rows' pieces, with as many words as T5's."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=8000, unk_token="<unk>", special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(
        (text for row in rows for text in (row.anchor, row.positive, *row.negatives)), trainer
    )
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    return T5Tokenizer(
        vocab=[(piece, score) for piece, score in pieces], extra_ids=NUM_WORDS - len(pieces), model_max_length=64
    )


def our_step(encoder: Encoder) -> Callable[[list[Triplet]], float]:
    """A function that takes a step of ours."""
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


def their_step(folder: Path, *, bf16: bool) -> Callable[[list[Triplet]], float]:
    """A function that takes a step of sentence-transformers."""
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


def fresh_encoder(rows: list[Triplet]) -> Encoder:
    """A T5-small sentence encoder with random weights."""
    tokenizer = train_tokenizer(rows)
    return Encoder.load(f"random:{SHAPE}", tokenizer=tokenizer, device="cpu", readout="enc-mean", projection=768)


def race(rows: list[Triplet], num_rounds: int) -> dict[str, Any]:
    """Time all steps in turns."""
    encoder = fresh_encoder(rows)
    has_bf16 = encoder.resolve_precision("auto") == "fast"
    with tempfile.TemporaryDirectory() as name:
        encoder.save(Path(name) / "model")
        steps = {"ours": our_step(encoder), "st_fp32": their_step(Path(name) / "model", bf16=False)}
        if has_bf16:
            steps["st_bf16"] = their_step(Path(name) / "model", bf16=True)
    seconds: dict[str, list[float]] = {who: [] for who in steps}
    losses: dict[str, list[float]] = {who: [] for who in steps}
    for number in range(num_rounds + 1):  # the first round warms up
        batch = rows[number * BATCH : (number + 1) * BATCH]
        for who, step in steps.items():
            start = time.perf_counter()
            losses[who].append(step(batch))
            seconds[who].append(time.perf_counter() - start)
        times = ", ".join(f"{who} {seconds[who][-1]:.2f} s (loss {losses[who][-1]:.3f})" for who in steps)
        print(f"{f'round {number}' if number else 'warm-up'}: {times}", flush=True)
    ratios = {}
    for who in list(steps)[1:]:
        found = [theirs / ours for theirs, ours in zip(seconds[who][1:], seconds["ours"][1:], strict=True)]
        spread = {"median": statistics.median(found), "min": min(found), "max": max(found), "rounds": num_rounds}
        ratios[f"{SHAPE}/over_{who}"] = spread
    return {
        "ratios": ratios,
        "not_measured": {} if has_bf16 else {f"{SHAPE}/over_st_bf16": "this CPU has no bf16"},
        "precision": "fast" if has_bf16 else "exact",
        "seconds": {who: times[1:] for who, times in seconds.items()},
        "losses": losses,
    }


def measure_peak(rows: list[Triplet], name: str) -> dict[str, float]:
    """Take a step with a large batch, in a process that does nothing else."""
    num_rows, num_negatives = PEAKS[name]
    batch = [Triplet(row.anchor, row.positive, row.negatives[:num_negatives]) for row in rows[:num_rows]]
    step = our_step(fresh_encoder(rows))
    step(batch[:8])  # after that, the optimizer's state is there
    start = time.perf_counter()
    step(batch)
    step_s = time.perf_counter() - start
    # not the peak of getrusage: a child's starts with that of its parent
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak_kb = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return {"peak_rss_gb": int(peak_kb) * 1024 / 1e9, "seconds_per_step": step_s}


def peaks(names: Sequence[str]) -> dict[str, Any]:
    """Measure each peak in its own process."""
    found = {}
    for name in names:
        command = [sys.executable, __file__, "--peak", name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[name] = json.loads(output.splitlines()[-1])
        print(
            f"{name}: {found[name]['peak_rss_gb']:.2f} GB, {found[name]['seconds_per_step']:.1f} s a step", flush=True
        )
    return {
        "peak_rss_gb": {name: values["peak_rss_gb"] for name, values in found.items()},
        "seconds_per_step": {name: values["seconds_per_step"] for name, values in found.items()},
    }


def main() -> None:
    """Parse the options, run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, the smaller peak: within two minutes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--peak", choices=PEAKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(SEED)
    source, rows = load_rows()
    if options.peak:
        print(json.dumps(measure_peak(rows, options.peak)))
        return
    print(f"rows: {source}, {BATCH} triplets a step, {torch.get_num_threads()} threads")
    result = {"rows": source, "threads": torch.get_num_threads(), **race(rows, 3 if options.quick else 9)}
    for name, spread in result["ratios"].items():
        print(
            f"{name}: {spread['median']:.2f}x ({spread['min']:.2f} to {spread['max']:.2f}), {spread['rounds']} rounds"
        )
    result |= peaks(list(PEAKS)[:1] if options.quick else list(PEAKS))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
