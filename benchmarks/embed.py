"""Embedding on a CPU (Linux): Tercet against sentence-transformers, ONNX Runtime, OpenVINO and CTranslate2.

    python benchmarks/embed.py [--quick] [--json FILE] [--shapes t5-small,t5-base] [--rounds N]

Models have the named T5 shapes and random weights; sentences are real where TERCET_DATA is set (STS). All contestants
run in turns, two threads each, tokenisation included. Ratios are of speed, round by round, against
sentence-transformers in fp32 at its defaults; `encdec_over_enc` is what the decoder readout costs relative to the mean
of the encoder (at `fast`; `_exact` and `_int8` at those). A contestant whose vectors differ too much from the reference
is not measured. Rivals whose packages are missing run in virtual environments of their own, which are made on demand.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peak import flops_of
from rivals import CONTESTANTS, REFERENCE
from sentences import load_sentences, train_tokenizer
from tercet import Encoder
from tercet.encoder.forward.linear import has_bf16
from tercet.evaluation.timing import Spread, forget_peak, in_turns, peak_rss_gb, ratio, spread
from workers import THREADS, Worker, WorkerError, python_with

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HERE = Path(__file__).parent
PEAK = "peak"
MAIN = (REFERENCE, "exact", "fast", "int8", "encdec_exact", "encdec_fast")
LEAST_COSINE = {"fp32": 0.9999, "bf16": 0.98, "int8": 0.9}
"""How near each vector must be to the reference's; weights that were drawn and not trained forgive little."""
EMULATED_EVERY = 16
"""Where the processor has no bf16, contestants in bf16 embed one of so many texts, and time is scaled by tokens."""
CHECKED = 256
"""How many texts, from the first on, vectors are compared of."""
PAUSE_S = 0.3
"""Between two contestants: threads that wait for more work spin for a while before they sleep."""
FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")


@dataclass
class Shape:
    """A model of one shape, as folders that every contestant can load."""

    name: str
    folder: Path
    texts_file: Path
    lengths: list[int] = field(default_factory=list)
    flops: dict[str, float] = field(default_factory=dict)

    def build(self, tokenizer: "PreTrainedTokenizerBase", models: set[str]) -> None:
        """Write the folders: mean of the encoder with a projection as sentence-t5 has it, and first decoder output."""
        texts = json.loads(self.texts_file.read_text(encoding="utf-8"))
        for model in sorted(models):
            readout = {"enc": "enc-mean", "encdec": "encdec-first"}[model]
            encoder = Encoder.load(
                f"random:{self.name}", tokenizer=tokenizer, device="cpu", readout=readout, projection=768
            )
            encoder.save(self.folder / model)
            self.lengths = [len(ids) for ids in encoder.tokens(texts)[0]]
            self.flops[model] = flops_of(encoder.tower.backbone.config, self.lengths, decoder=model == "encdec")


class Result:
    """What the JSON file holds; figures are keyed `shape/contestant`."""

    def __init__(self) -> None:
        self.ratios: dict[str, Spread] = {}
        self.sentences_per_s: dict[str, Spread] = {}
        self.shares_of_peak: dict[str, Spread] = {}
        self.cosines: dict[str, dict[str, float]] = {}
        self.cosine_of_different_sentences: dict[str, float] = {}
        self.peak_rss_gb: dict[str, float] = {}
        self.padding: dict[str, float] = {}
        self.peaks_gflops: dict[str, Spread] = {}
        self.extrapolated: dict[str, float] = {}
        self.skipped: dict[str, str] = {}
        self.versions: dict[str, str] = {}


@contextmanager
def running(names: list[str], texts_file: Path, venvs: Path) -> Iterator[tuple[dict[str, Worker], dict[str, str]]]:
    """Start the processes of all contestants; also return who has none, and why."""
    workers = {PEAK: Worker(Path(sys.executable), HERE / "peak.py")}
    unable: dict[str, str] = {}
    try:
        for name in names:
            try:
                python = python_with(CONTESTANTS[name].packages, venvs / name.partition("_")[0])
                workers[name] = Worker(python, HERE / "rivals.py", name, texts_file, str(every(name)))
            except WorkerError as error:
                unable[name] = str(error)
        yield workers, unable
    finally:
        for worker in workers.values():
            worker.end()


def load(shape: Shape, workers: dict[str, Worker], result: Result) -> list[str]:
    """Have every contestant load a shape and embed the first texts, and return the names of those that can."""

    def load_one(name: str) -> bool:
        try:
            loaded = workers[name].ask("load", folder=str(shape.folder / CONTESTANTS[name].model))
            workers[name].ask("vectors", file=str(shape.folder / f"{name}.npy"), first=CHECKED)
        except WorkerError as error:
            result.skipped[f"{shape.name}/{name}"] = str(error)
            return False
        result.versions |= loaded["versions"]
        return True

    names = [name for name in workers if name != PEAK]
    with ThreadPoolExecutor(THREADS) as pool:
        return [name for name, able in zip(names, pool.map(load_one, names), strict=True) if able]


def every(name: str) -> int:
    """Return of how many texts a contestant embeds one: not of each where bf16 is emulated, which takes very long."""
    return EMULATED_EVERY if CONTESTANTS[name].precision == "bf16" and not has_bf16() else 1


def check(shape: Shape, names: list[str], result: Result) -> list[str]:
    """Compare vectors with the reference's, and return the names of those that agree."""
    agreeing = []
    if REFERENCE in names:
        vectors = np.load(shape.folder / f"{REFERENCE}.npy")
        num = len(vectors)
        total = float(np.square(vectors.sum(axis=0)).sum())
        result.cosine_of_different_sentences[shape.name] = (total - num) / (num * (num - 1))
    for name in names:
        contestant = CONTESTANTS[name]
        reference = REFERENCE if contestant.model == "enc" else "encdec_exact"
        if reference not in names:
            agreeing.append(name)
            continue
        vectors, wanted = (np.load(shape.folder / f"{who}.npy") for who in (name, reference))
        cosines = (vectors * wanted[:: every(name)]).sum(axis=1)
        least = float(cosines.min())
        result.cosines[f"{shape.name}/{name}"] = {"min": least, "mean": float(cosines.mean())}
        if least >= LEAST_COSINE[contestant.precision]:
            agreeing.append(name)
        else:
            reason = f"a vector has cosine {least:.4f} with {reference}, less than {LEAST_COSINE[contestant.precision]}"
            result.skipped[f"{shape.name}/{name}"] = reason
    return agreeing


def compete(shape: Shape, workers: dict[str, Worker], names: list[str], num_rounds: int, result: Result) -> None:
    """Run all in turns and write down what came out."""
    turns = {name: partial(_turn, workers[name]) for name in (PEAK, *names)}
    rounds: list[dict[str, dict[str, Any]]] = []
    for number, answers in enumerate(in_turns(turns, num_rounds=num_rounds), start=1):
        rounds.append(answers)
        seconds = (f"{name} {answer['seconds']:.1f}" for name, answer in answers.items() if name != PEAK)
        print(f"{shape.name}, round {number}, seconds: {', '.join(seconds)}", flush=True)
    scale = {name: sum(shape.lengths) / sum(shape.lengths[:: every(name)]) for name in names}
    seconds_of = {name: [answers[name]["seconds"] * scale[name] for answers in rounds] for name in names}
    result.extrapolated |= {f"{shape.name}/{name}": scale[name] for name in names if every(name) > 1}
    peaks = [answers[PEAK]["gflops"] for answers in rounds]
    for name, seconds in seconds_of.items():
        key, contestant = f"{shape.name}/{name}", CONTESTANTS[name]
        result.sentences_per_s[key] = spread([len(shape.lengths) / s for s in seconds])
        result.peak_rss_gb[key] = max(answers[name]["peak_rss_gb"] for answers in rounds)
        padded_tokens = rounds[0][name]["padded_tokens"]
        if padded_tokens:
            result.padding[key] = padded_tokens / sum(shape.lengths[:: every(name)])
        if REFERENCE in seconds_of and name != REFERENCE:
            result.ratios[key] = ratio(seconds_of[REFERENCE], seconds)
        if contestant.precision in peaks[0]:
            gflops = [shape.flops[contestant.model] / s / 1e9 for s in seconds]
            result.shares_of_peak[key] = ratio(gflops, [peak[contestant.precision] for peak in peaks])
    for level, suffix in (("fast", ""), ("exact", "_exact"), ("int8", "_int8")):
        if level in seconds_of and f"encdec_{level}" in seconds_of:
            cost = ratio(seconds_of[f"encdec_{level}"], seconds_of[level])
            result.ratios[f"{shape.name}/encdec_over_enc{suffix}"] = cost
    for precision in peaks[0]:
        result.peaks_gflops[f"{shape.name}/{precision}"] = spread([peak[precision] for peak in peaks])


def _turn(worker: Worker) -> dict[str, Any]:
    time.sleep(PAUSE_S)
    forget_peak(worker.process.pid)
    return worker.ask("run") | {"peak_rss_gb": peak_rss_gb(worker.process.pid)}


def print_table(shape: Shape, names: list[str], result: Result) -> None:
    """Print what was measured of one shape."""
    padding = result.padding.get(f"{shape.name}/{REFERENCE}", float("nan"))
    print(f"\n{shape.name}: {sum(shape.lengths):,} tokens; sentence-transformers pads to {padding:.2f} times as many")
    peaks = {key: gflops["median"] for key, gflops in result.peaks_gflops.items() if key.startswith(f"{shape.name}/")}
    print("matrix products, GFLOP/s: " + ", ".join(f"{key.partition('/')[2]} {peaks[key]:.0f}" for key in peaks))
    if shape.name in result.cosine_of_different_sentences:
        different = result.cosine_of_different_sentences[shape.name]
        print(f"cosine: the least with the reference; of different sentences {different:.4f} on average")
    print(f"{'':18}{'sentences/s':>12}{'ratio':>8}{'from':>7}{'to':>7}{'of peak':>9}{'cosine':>9}{'GB':>6}")
    for name in names:
        key = f"{shape.name}/{name}"
        if key not in result.sentences_per_s:
            print(f"{name:18}  skipped: {result.skipped.get(key, 'unknown')}")
            continue
        speed_up = result.ratios.get(key)
        three = "".join(f"{speed_up[k]:{w}.2f}" for k, w in (("median", 8), ("min", 7), ("max", 7))) if speed_up else ""
        share = f"{result.shares_of_peak[key]['median']:.0%}" if key in result.shares_of_peak else ""
        cosine = f"{result.cosines[key]['min']:.4f}" if key in result.cosines else ""
        rate, memory = result.sentences_per_s[key]["median"], result.peak_rss_gb[key]
        print(f"{name:18}{rate:12.1f}{three:22}{share:>9}{cosine:>9}{memory:6.1f}")
    if any(every(name) > 1 for name in names):
        print(f"bf16 is emulated here: its contestants embed one of {EMULATED_EVERY} sentences, scaled by tokens")
    for key, cost in result.ratios.items():
        if key.startswith(f"{shape.name}/encdec_over_enc"):
            name = key.partition("/")[2]
            print(f"{name}: {cost['median']:.3f} ({cost['min']:.3f} to {cost['max']:.3f}, {cost['rounds']} rounds)")
    print(flush=True)


def machine() -> dict[str, Any]:
    """Return what a figure depends on."""
    file = Path("/proc/cpuinfo")
    info = file.read_text() if file.exists() else ""
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "")
    flags = set(next((line for line in info.splitlines() if line.startswith("flags")), "").split())
    return {
        "cpu": model or platform.processor(),
        "num_cpus": os.cpu_count(),
        "threads": THREADS,
        "flags": {flag: flag in flags for flag in FLAGS},
        "bf16": has_bf16(),
        "load_average": os.getloadavg()[0],
    }


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sentences, the main contestants: within two minutes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--shapes", default="t5-small,t5-base")
    parser.add_argument("--rounds", type=int, help="5, with --quick 3")
    parser.add_argument("--sentences", type=int, help="2,000, with --quick 32")
    parser.add_argument("--contestants", help=f"some of: {', '.join(CONTESTANTS)}")
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tercet" / "benchmark-venvs"
    parser.add_argument("--venvs", type=Path, default=default, metavar="DIR", help="environments of rivals")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.sentences = options.sentences or (32 if options.quick else 2000)
    names = options.contestants.split(",") if options.contestants else MAIN if options.quick else CONTESTANTS
    options.contestants = list(names)
    unknown = set(names) - set(CONTESTANTS)
    if unknown:
        parser.error(f"unknown contestants: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    """Measure one shape after the other, print and write."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that models of gigabytes do not stay behind
    torch.set_num_threads(THREADS)
    texts, source = load_sentences(options.sentences)
    print(f"sentences: {len(texts):,}, {source}")
    tokenizer, names, result = train_tokenizer(), options.contestants, Result()
    result.versions = {name: version(name) for name in ("tercet", "torch", "transformers", "tokenizers", "numpy")}
    facts = machine()
    print(f"machine: {facts['cpu']}, {facts['num_cpus']} CPUs, bf16: {'yes' if facts['bf16'] else 'no'}", flush=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        texts_file = Path(folder) / "texts.json"
        texts_file.write_text(json.dumps(texts), encoding="utf-8")
        workers, unable = stack.enter_context(running(names, texts_file, options.venvs))
        for name in options.shapes.split(","):
            shape = Shape(name, Path(folder) / name, texts_file)
            shape.build(tokenizer, {"enc", *(CONTESTANTS[name].model for name in names)})
            result.skipped |= {f"{name}/{who}": why for who, why in unable.items()}
            agreeing = check(shape, load(shape, workers, result), result)
            compete(shape, workers, agreeing, options.rounds, result)
            print_table(shape, names, result)
            shutil.rmtree(shape.folder)
            if options.json:
                sentences = {"num": len(texts), "source": source, "num_tokens": sum(shape.lengths)}
                content = {"machine": facts, "sentences": sentences, "rounds": options.rounds, **vars(result)}
                options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
