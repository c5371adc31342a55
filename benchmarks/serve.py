"""How fast and how steady `tercet serve` is, only on 127.0.0.1.

    python benchmarks/serve.py [--quick] [--json FILE] [--peers plain,infinity]
    python benchmarks/serve.py --overload 60 --fuzz 10000 --restarts 20 --texts 1000000

Without further options: throughput with 8 clients against `Encoder.embed` on the same texts, and the latency of one
sentence, alone and beside those clients, all in turns. Peers serve the same model. Ratios are round by round: ours over
theirs in texts per second, theirs over ours in CPU time and in the median latency of a round. `--overload`, `--fuzz`,
`--restarts` and `--texts` are long checks: each says what it saw, and the exit code is 1 where that is not as promised.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import steadiness
from asking import latencies, saturate
from sentences import load_sentences
from servers import Command, Server, infinity, plain, running, tercet
from tercet.evaluation.timing import Spread, in_turns, ratio, spread
from workers import THREADS, Worker

HERE = Path(__file__).parent


@dataclass
class Result:
    """What is written."""

    ratios: dict[str, Spread] = field(default_factory=dict)
    texts_per_s: dict[str, Spread] = field(default_factory=dict)
    latency_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def check(self, name: str, seen: steadiness.Seen) -> None:
        """Keep what was seen, and which promises were broken."""
        self.checks[name] = seen[0]
        self.broken += [f"{name}: {promise}" for promise, held in seen[1].items() if not held]
        print(f"{name}: {json.dumps(seen[0], indent=1)}", flush=True)


def compare(options: argparse.Namespace, folder: Path, result: Result) -> None:
    """Measure throughput and latency in turns, every contestant in its own process."""
    texts = load_sentences(options.sentences)[0]
    file = folder / "texts.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    commands = {"serve": tercet(options.model, "--precision", options.precision)} | {
        peer: start_peer(peer, options, folder) for peer in options.peers
    }
    embed = Worker(
        Path(sys.executable), HERE / "embedding.py", options.model, options.precision, file, num_threads=options.threads
    )
    with ExitStack() as stack:
        stack.callback(embed.end)
        servers = {
            name: stack.enter_context(running(command, folder / f"{name}.log", num_threads=options.threads))
            for name, command in commands.items()
        }
        contestants: dict[str, Callable[[], Measured]] = {"embed": lambda: Measured(**embed.ask("run"))}
        for name, server in servers.items():
            contestants[name] = lambda server=server: measure(server, texts, options.asked)  # type: ignore[misc]
        for contestant in contestants.values():
            contestant()  # the first round is always slower
        rounds = list(in_turns(contestants, num_rounds=options.rounds))
    tell(rounds, len(texts), result)


def start_peer(name: str, options: argparse.Namespace, folder: Path) -> Command:
    """Return how a peer is started."""
    if name == "plain":
        return plain(options.model, options.environments or folder)
    return infinity(options.model, folder, options.infinity)


@dataclass(frozen=True)
class Measured:
    """One round of a contestant."""

    seconds: float
    cpu_s: float
    """Of all its threads; a server's clients are not in it."""

    alone_ms: list[float] = field(default_factory=list)
    loaded_ms: list[float] = field(default_factory=list)


def measure(server: Server, texts: list[str], num: int) -> Measured:
    """Measure a server once."""
    cpu_s = server.cpu_s
    seconds = asyncio.run(saturate(server, texts))
    cpu_s = server.cpu_s - cpu_s
    alone = asyncio.run(latencies(server, texts, num, loaded=False))
    return Measured(seconds, cpu_s, alone, asyncio.run(latencies(server, texts, num, loaded=True)))


def tell(rounds: Sequence[dict[str, Measured]], num: int, result: Result) -> None:
    """Print and keep what the rounds say."""
    seconds = {name: [each[name].seconds for each in rounds] for name in rounds[0]}
    cpu_s = {name: [each[name].cpu_s for each in rounds] for name in rounds[0]}
    for name, values in seconds.items():
        result.texts_per_s[name] = spread([num / value for value in values])
        print(f"{name}: {result.texts_per_s[name]['median']:.0f} texts/s", flush=True)
        if name != "serve":
            result.ratios[f"throughput/serve_over_{name}"] = ratio(values, seconds["serve"])
            result.ratios[f"cpu_time/{name}_over_serve"] = ratio(cpu_s[name], cpu_s["serve"])
    for kind in ("alone", "loaded"):
        waits = {name: [getattr(each[name], f"{kind}_ms") for each in rounds] for name in seconds if name != "embed"}
        medians = {name: [statistics.median(each) for each in values] for name, values in waits.items()}
        for name, values in waits.items():
            result.latency_ms[f"{name}/{kind}"] = percentiles([each for one in values for each in one])
            print(f"{name}, one sentence {kind}: {result.latency_ms[f'{name}/{kind}']} ms", flush=True)
            if name != "serve":
                result.ratios[f"latency_{kind}/{name}_over_serve"] = ratio(medians[name], medians["serve"])
    print(json.dumps(result.ratios, indent=1), flush=True)


def percentiles(values: list[float]) -> dict[str, float]:
    """Return median and 99th percentile."""
    ordered = sorted(values)
    return {"p50": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sentences, two rounds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--precision", default="exact", help="of the server and of embed; peers compute in fp32")
    parser.add_argument("--threads", type=int, default=THREADS, help="that each contestant computes in: 2")
    parser.add_argument("--peers", default="", help="plain (FastAPI and sentence-transformers), infinity, or both")
    parser.add_argument(
        "--infinity", type=Path, metavar="PYTHON", help="an interpreter with infinity-emb[server,torch]"
    )
    parser.add_argument("--environments", type=Path, metavar="DIR", help="where a peer's environment is made and kept")
    parser.add_argument("--sentences", type=int, help="2,048, with --quick 256")
    parser.add_argument("--rounds", type=int, help="5, with --quick 2")
    parser.add_argument("--asked", type=int, help="requests for each latency and round: 200, with --quick 20")
    parser.add_argument("--overload", type=float, metavar="SECONDS", help="ten times what can be computed, for so long")
    parser.add_argument("--fuzz", type=int, metavar="NUM", help="so many damaged requests")
    parser.add_argument("--texts", type=int, metavar="NUM", help="so many short texts")
    parser.add_argument("--restarts", type=int, metavar="NUM", help="killed and started so often")
    options = parser.parse_args()
    options.sentences = options.sentences or (256 if options.quick else 2048)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.asked = options.asked or (20 if options.quick else 200)
    options.peers = [peer for peer in options.peers.split(",") if peer]
    if unknown := set(options.peers) - {"plain", "infinity"}:
        parser.error(f"--peers: there is no {unknown.pop()}")
    if "infinity" in options.peers and options.infinity is None:
        parser.error("--peers infinity: it needs an environment of its own; name its interpreter by --infinity")
    return options


def check(options: argparse.Namespace, folder: Path, result: Result) -> None:
    """Make the long checks that were asked for."""
    log = folder / "server.log"
    if options.overload or options.fuzz or options.texts:
        more = ("--max-queue", str(steadiness.MAX_QUEUE), "--precision", options.precision)
        with running(tercet(options.model, *more), log, num_threads=options.threads) as server:
            if options.overload:
                result.check("overload", steadiness.overload(server, options.overload))
            if options.fuzz:
                result.check("fuzz", steadiness.fuzz(server, options.fuzz, log))
            if options.texts:
                result.check("texts", steadiness.many_texts(server, options.texts))
    if options.restarts:
        result.check("restarts", steadiness.restarts(options.model, options.restarts, folder / "restarts.log"))


def main() -> None:
    """Measure what was asked for, print and write."""
    options, result = parse(), Result()
    with tempfile.TemporaryDirectory() as temporary:
        if options.overload or options.fuzz or options.texts or options.restarts:
            check(options, Path(temporary), result)
        else:
            compare(options, Path(temporary), result)
    if options.json:
        options.json.write_text(json.dumps(vars(result), indent=2) + "\n", encoding="utf-8")
    if result.broken:
        sys.exit("\n".join(["broken promises:", *result.broken]))


if __name__ == "__main__":
    main()
