"""Embedding on Ray (Linux): what a worker costs over this process, what the driver costs, and what a corpus would cost.

    python benchmarks/scale.py [--quick] [--json FILE] [--model mini] [--precision exact] [--descriptors 100000]

`embed` in a process without Ray, pinned to one core with one thread, against one and two workers on cores of their own,
in turns, all into folders of shards. Ratios are of speed while work is under way: from the end of every worker's first
shard to the end of the last one: neither loading nor Ray's start counts. `_cpu` is per second of CPU time of all
processes, driver and Ray included, which says what Ray costs where the machine has other work, too. The driver is
measured with workers that do nothing, over so many descriptions of shards. A survey (read, check, hash, plan) is
measured over growing files.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from machine import machine
from sentences import load_sentences, train_tokenizer
from tercet import Encoder
from tercet.data.rows.spans import Source, Span, Survey, survey
from tercet.distributed.cluster import connected
from tercet.distributed.pool import Pool
from tercet.distributed.settings import ClusterSettings
from tercet.encoder.forward.linear import has_bf16
from tercet.evaluation.timing import Spread, in_turns, peak_rss_gb, ratio, spread
from tercet.vectors.parts import Part, parts_of

HERE, WITH_RAY = "here", ("one_worker", "two_workers")
LINES_OF_A_SHARD = 8192
_RUN = """
import os, sys, tercet
engine, model, precision, source, out, shard = sys.argv[1:]
if engine == "0":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    import torch
    torch.set_num_threads(1)
chosen = {} if engine == "0" else {"engine": {"workers": int(engine)}}
tercet.embed(source, out=out, model=model, precision=precision, shard_texts=int(shard), **chosen)
"""


def rate(
    scratch: Path, model: str, precision: str, num_texts: int, shard_texts: int, workers: int
) -> tuple[float, float]:
    """Return how many texts are embedded in a second, and in a second of CPU time of all processes that take part.

    Args:
        scratch: A folder with the texts.
        model: What embeds.
        precision: How it computes.
        num_texts: How many texts there are.
        shard_texts: How many are in a shard.
        workers: How many workers; 0 for a process without Ray.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        out = Path(folder) / "vectors"
        options = [str(workers), model, precision, str(scratch / "in.txt"), str(out), str(shard_texts)]
        first = max(1, workers)  # the first shard of each worker begins with what a process does once
        used_s: dict[int, float] = {}
        with subprocess.Popen(
            [sys.executable, "-c", _RUN, *options], env=os.environ | {"OMP_NUM_THREADS": "1"}
        ) as process:
            while process.poll() is None:
                used_s.setdefault(len([*out.glob("*.parquet")]), cpu_seconds(process.pid))
                time.sleep(0.02)
        if process.returncode:
            raise SystemExit(f"embed ended with {process.returncode}")
        ends = sorted(file.stat().st_mtime_ns for file in out.glob("*.parquet"))
        seen = [num for num in sorted(used_s) if num >= first]
        of_cpu = (seen[-1] - seen[0]) * shard_texts / (used_s[seen[-1]] - used_s[seen[0]])
        return (num_texts - first * shard_texts) / ((ends[-1] - ends[first - 1]) / 1e9), of_cpu


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and of all that it started, and they in turn."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)], ticks[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:13]))

    def is_ours(process: int) -> bool:
        while process not in (root, 0, 1):
            process = parents.get(process, 0)
        return process == root

    return sum(num for process, num in ticks.items() if is_ours(process)) / os.sysconf("SC_CLK_TCK")


def throughput(scratch: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Measure a process alone, one worker and two."""
    num_shards, shard_texts, num_rounds = (6, 512, 1) if args.quick else (12, args.shard_texts, args.rounds)
    texts, source = load_sentences(num_shards * shard_texts)
    lines = list(itertools.islice(itertools.cycle(texts), num_shards * shard_texts))
    # equal texts are embedded once in a shard; a number makes each one different
    (scratch / "in.txt").write_text("".join(f"{i} {' '.join(line.split())}\n" for i, line in enumerate(lines)))
    measured = partial(rate, scratch, args.model, args.precision, len(lines), shard_texts)
    turns = {HERE: partial(measured, 0), "one_worker": partial(measured, 1), "two_workers": partial(measured, 2)}
    rounds = list(in_turns(turns, num_rounds=num_rounds))
    found: dict[str, Any] = {"ratios": {}}
    for place, (ending, key) in enumerate({"": "texts_per_s", "_cpu": "texts_per_cpu_s"}.items()):
        rates = {name: [each[name][place] for each in rounds] for name in turns}
        found["ratios"] |= {f"{args.model}/{name}{ending}": ratio(rates[name], rates[HERE]) for name in WITH_RAY}
        found[key] = {name: spread(values) for name, values in rates.items()}
    return found | {
        "texts": {"num": len(lines), "source": source, "shard_texts": shard_texts},
    }


CORPORA = {
    "GenSE's 61M triplets": (183e6, 15),
    "C4 (en), 365M documents": (365e6, 256),
    "2 billion CQA pairs": (4e9, 30),
}
"""How many texts, and about how many tokens each, cut at 256."""

BYTES_OF_A_TOKEN = 4.5
"""How long a text is by its tokens, in English."""


def costs(tokens_per_s: float, dims: int) -> dict[str, dict[str, float]]:
    """Return what corpora would cost.

    Args:
        tokens_per_s: How many tokens a core embeds in a second.
        dims: How many numbers of 32 bits a vector has.
    """
    found = {}
    for name, (num, tokens) in CORPORA.items():
        read_gb, vectors_gb = num * tokens * BYTES_OF_A_TOKEN / 1e9, num * 4 * dims / 1e9
        hours = num * tokens / tokens_per_s / 3600
        found[name] = {
            "core_hours": hours,
            "read_gb": read_gb,
            "written_gb": read_gb + vectors_gb,
            "shards": num / LINES_OF_A_SHARD,
            "shard_minutes": LINES_OF_A_SHARD * tokens / tokens_per_s / 60,
            "mb_per_s_of_1000_cores": (2 * read_gb + vectors_gb) * 1e3 / (hours * 3.6),
        }
    return found


class Idle:
    """A worker that does nothing."""

    def __call__(self, part: Any) -> int:
        """Say which one it was."""
        return int(part.part.number)

    def try_rows(self, _part: Any, _first: int, _last: int) -> None:
        """Try nothing."""


class Labelled:
    """A shard as the pool sees it."""

    def __init__(self, part: Part) -> None:
        self.part, self.num_rows, self.label = part, part.span.num_texts, part.name


def make_idle(_shared: object) -> Idle:
    """Return a worker."""
    return Idle()


def driver(num: int) -> dict[str, Any]:
    """Give out so many descriptions of shards, and return the time and the memory that it took."""
    spans = tuple(Span(i * 8192, 8192, i * 8192 + 1, i * 600_000, f"{i:064x}") for i in range(num))
    planned = Survey(Source("/corpus/in.jsonl", "jsonl", "text"), "1 1", spans, (None, None, 8192))
    settings = ClusterSettings(workers=2, cpus_per_worker=0.5)
    with connected(settings) as cluster, Pool(cluster, make_idle, None, num_tasks=num) as pool:
        tasks = map(Labelled, parts_of([planned]))
        for _ in pool.run(itertools.islice(tasks, 100)):  # the workers have started
            pass
        start_s = time.monotonic()
        num_done = sum(1 for _ in pool.run(tasks))
        seconds = time.monotonic() - start_s
    return {"shards": num_done, "seconds": seconds, "shards_per_s": num_done / seconds, "peak_rss_gb": peak_rss_gb()}


def surveys(scratch: Path, sizes: list[int]) -> list[dict[str, Any]]:
    """Survey files of so many lines, and return how long it took."""
    texts, _ = load_sentences(20_000)
    found = []
    for num in sizes:
        file = scratch / f"{num}.txt"
        with file.open("w") as stream:
            stream.writelines(f"{' '.join(text.split())}\n" for text in itertools.islice(itertools.cycle(texts), num))
        start_s = time.monotonic()
        planned = survey(str(file), span_texts=LINES_OF_A_SHARD)
        seconds = time.monotonic() - start_s
        found.append({"lines": planned.num_texts, "seconds": seconds, "lines_per_s": planned.num_texts / seconds})
    return found


def rates(*, quick: bool) -> dict[str, Spread]:
    """Return how many tokens one thread embeds in a second of processor time, by model and precision."""
    torch.set_num_threads(1)
    texts, _ = load_sentences(2048)
    base = Encoder.load("random:t5-base", tokenizer=train_tokenizer(), device="cpu", readout="enc-mean")
    models = {"mini": (Encoder.load("mini", device="cpu"), 1024), "t5-base": (base, 128)}
    found = {}
    for name, (encoder, num) in models.items():
        chosen = texts[: 32 if quick else num]
        num_tokens = sum(map(len, encoder.tokens(chosen)[0]))
        for precision in ("exact", "fast") if has_bf16() else ("exact",):
            encoder.embed(chosen[:32], precision=precision)
            seconds = []
            for _ in range(1 if quick else 5):
                start_s = time.process_time()
                encoder.embed(chosen, precision=precision)
                seconds.append(time.process_time() - start_s)
            found[f"{name}/{precision}"] = spread([num_tokens / each for each in seconds])
    return found


def main() -> None:
    """Measure, and print or write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--json", type=Path, help="where to write it, beside what was measured before")
    parser.add_argument("--model", default="mini", help="what embeds (mini)")
    parser.add_argument("--precision", default="exact", help="how it computes (exact)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--shard-texts", type=int, default=2048, help="how many texts a shard has (2,048)")
    parser.add_argument("--descriptors", type=int, help="how many shards the driver gives out (100,000; quick 2,000)")
    parser.add_argument("--only", choices=("throughput", "driver", "surveys", "rates"), help="measure nothing else")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "command": "python benchmarks/scale.py",
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    with tempfile.TemporaryDirectory(prefix="tercet-scale-") as folder:
        scratch = Path(folder)
        if args.only in (None, "throughput"):
            result |= throughput(scratch, args)
        if args.only in (None, "surveys"):
            result["surveys"] = surveys(scratch, [10_000] if args.quick else [10_000, 100_000, 1_000_000])
        if args.only in (None, "rates"):
            result["tokens_per_cpu_s"] = rates(quick=args.quick)
        if args.only in (None, "driver"):
            num = args.descriptors or (2_000 if args.quick else 100_000)
            result["drivers"] = {str(num): driver(num)}
    print(json.dumps(result, indent=2))
    if args.json is not None:
        before = json.loads(args.json.read_text()) if args.json.exists() else {}
        result["drivers"] = {**before.get("drivers", {}), **result.get("drivers", {})}
        args.json.write_text(json.dumps(before | result, indent=2) + "\n")


if __name__ == "__main__":
    main()
