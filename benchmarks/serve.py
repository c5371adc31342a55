"""How fast and how steady the server is, as ratios: each contestant in a process of its own, only on 127.0.0.1.

    python benchmarks/serve.py [--quick] [--json FILE] [--rivals st]
    python benchmarks/serve.py --overload 60 --fuzz 10000 --restarts 20 --texts 1000000

Without further options: throughput with 8 clients against `Encoder.embed` on the same texts, and the latency of one
sentence, alone and beside those clients; with `--rivals st` also of a plain Starlette and sentence-transformers
server. `--overload`, `--fuzz`, `--restarts` and `--texts` are long checks: each says what it saw, and ends with exit
code 1 where that is not as promised. Each has an end in count or time.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sentences import load_sentences
from tercet.evaluation.timing import ratio, spread

NUM_CLIENTS, TEXTS_A_REQUEST = 8, 32
ASK_S = 120.0


@dataclass
class Result:
    """What is written."""

    ratios: dict[str, dict[str, float]] = field(default_factory=dict)
    sentences_per_s: dict[str, dict[str, float]] = field(default_factory=dict)
    latency_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def check(self, name: str, seen: dict[str, Any], promised: dict[str, bool]) -> None:
        """Keep what was seen, and which promises were broken."""
        self.checks[name] = seen
        self.broken += [f"{name}: {promise}" for promise, held in promised.items() if not held]
        print(f"{name}: {seen}", flush=True)


@dataclass(frozen=True)
class Server:
    """A server under test."""

    process: subprocess.Popen[str]
    address: str

    @property
    def rss_mb(self) -> float:
        """The memory that it holds now."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, log: Path, *, path: str = "/ready") -> Iterator[Server]:
    """Start a server, yield it when it answers, and stop it."""
    with log.open("a") as stream, subprocess.Popen(command, stdout=stream, stderr=stream, text=True) as process:
        address = f"http://127.0.0.1:{port}"
        try:
            end = time.monotonic() + 180
            while not is_there(address + path):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{command}: did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield Server(process, address)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(45)
            except subprocess.TimeoutExpired:
                process.kill()


def is_there(url: str) -> bool:
    """Return whether a server answers."""
    try:
        return httpx.get(url, timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def tercet_command(model: str, port: int, *more: str) -> list[str]:
    """Return how the server is started."""
    options = ["--model", f"model={model}", "--port", str(port), "--no-access-log", *more]
    return [sys.executable, "-m", "tercet", "serve", *options]


async def ask(client: httpx.AsyncClient, texts: list[str]) -> tuple[int, float]:
    """Ask for vectors; return the status (0 where there is none) and the seconds."""
    start = time.perf_counter()
    try:
        body = {"input": texts, "encoding_format": "base64"}
        answer = await client.post("/v1/embeddings", json=body)
        return answer.status_code, time.perf_counter() - start
    except httpx.TransportError:
        return 0, time.perf_counter() - start


async def saturate(address: str, texts: list[str]) -> float:
    """Return the seconds for all texts, from several clients at once."""
    parts = [texts[i : i + TEXTS_A_REQUEST] for i in range(0, len(texts), TEXTS_A_REQUEST)]
    async with httpx.AsyncClient(base_url=address, timeout=ASK_S) as client:
        start = time.perf_counter()

        async def be_a_client() -> None:
            while parts:
                status, _ = await ask(client, parts.pop())
                if status != 200:
                    raise SystemExit(f"{address} answered {status}")

        await asyncio.gather(*(be_a_client() for _ in range(NUM_CLIENTS)))
        return time.perf_counter() - start


async def latencies(address: str, texts: list[str], num: int, *, loaded: bool) -> list[float]:
    """Return the milliseconds of requests with one sentence, alone or beside clients that never stop."""
    async with httpx.AsyncClient(base_url=address, timeout=ASK_S) as client:
        draw = random.Random(0)

        async def be_busy() -> None:
            while True:
                await ask(client, draw.sample(texts, min(TEXTS_A_REQUEST, len(texts))))

        busy = [asyncio.create_task(be_busy()) for _ in range(NUM_CLIENTS if loaded else 0)]
        try:
            await ask(client, texts[:1])
            return [1000 * (await ask(client, [draw.choice(texts)]))[1] for _ in range(num)]
        finally:
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)


def of(values: list[float]) -> dict[str, float]:
    """Return median and 99th percentile."""
    ordered = sorted(values)
    return {"p50": statistics.median(ordered), "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]}


EMBED = """
import sys, time, json
from tercet import Encoder
texts, encoder = json.load(open(sys.argv[2])), Encoder.load(sys.argv[1])
encoder.embed(texts[:8])
print("ready", flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    encoder.embed(texts)
    print(time.perf_counter() - start, flush=True)
"""

RIVAL = """
import sys
import numpy as np
import uvicorn
from base64 import b64encode
from sentence_transformers import SentenceTransformer
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

model = SentenceTransformer(sys.argv[1], device="cpu")

async def embeddings(request):
    texts = (await request.json())["input"]
    vectors = np.asarray(await run_in_threadpool(model.encode, texts, show_progress_bar=False), np.float32)
    data = [{"index": i, "embedding": b64encode(v.tobytes()).decode()} for i, v in enumerate(vectors)]
    return JSONResponse({"data": data})

async def ready(request):
    return JSONResponse({})

app = Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"]), Route("/ready", ready)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
"""


def compare(options: argparse.Namespace, folder: Path, result: Result) -> None:
    """Measure throughput and latency in turns, every contestant in its own process."""
    texts = load_sentences(options.sentences)[0]
    file = folder / "texts.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    command = [sys.executable, "-c", EMBED, options.model, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as embed:
        assert embed.stdin and embed.stdout
        to, back = embed.stdin, embed.stdout
        assert back.readline() == "ready\n"

        def embed_all() -> float:
            print(file=to, flush=True)
            return float(back.readline())

        contestants: dict[str, Callable[[], float]] = {"embed": embed_all}
        port, rival_port = free_port(), free_port()
        rival = [sys.executable, "-c", RIVAL, str(options.rival_model), str(rival_port)]
        with running(tercet_command(options.model, port), port, folder / "tercet.log") as server:
            contestants["tercet"] = lambda: asyncio.run(saturate(server.address, texts))
            if "st" not in options.rivals:
                race(contestants, {"tercet": server}, texts, options, result)
            else:
                with running(rival, rival_port, folder / "st.log") as other:
                    contestants["st"] = lambda: asyncio.run(saturate(other.address, texts))
                    race(contestants, {"tercet": server, "st": other}, texts, options, result)
        to.close()


def race(
    contestants: dict[str, Callable[[], float]],
    servers: dict[str, Server],
    texts: list[str],
    options: argparse.Namespace,
    result: Result,
) -> None:
    """Measure all in turns, every other round backwards."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    waits: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for name in list(contestants)[:: 1 if number % 2 == 0 else -1]:
            seconds[name].append(contestants[name]())
        for name, server in servers.items():
            for kind in ("alone", "loaded"):
                found = asyncio.run(latencies(server.address, texts, options.asked, loaded=kind == "loaded"))
                waits.setdefault(f"{name}/{kind}", []).extend(found)
    for name, each in seconds.items():
        result.sentences_per_s[name] = spread([len(texts) / s for s in each])
        print(f"{name}: {result.sentences_per_s[name]['median']:.0f} sentences/s", flush=True)
    result.ratios["throughput/tercet_over_embed"] = ratio(seconds["embed"], seconds["tercet"])
    if "st" in seconds:
        result.ratios["throughput/tercet_over_st"] = ratio(seconds["st"], seconds["tercet"])
    for key, each in waits.items():
        result.latency_ms[key] = of(each)
        print(f"{key}: {of(each)} ms", flush=True)
    print(json.dumps(result.ratios, indent=1), flush=True)


def overload(server: Server, seconds: float, max_queue: int, result: Result) -> None:
    """Ask for far more than can be computed, and see what is answered."""
    texts = load_sentences(2000)[0]
    codes: Counter[int] = Counter()
    queue: list[float] = []

    async def scene() -> float:
        draw, end = random.Random(0), time.monotonic() + seconds
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=server.address, timeout=ASK_S, limits=limits) as client:

            async def be_a_client() -> None:
                while time.monotonic() < end:
                    codes[(await ask(client, draw.choices(texts, k=TEXTS_A_REQUEST)))[0]] += 1

            async def look() -> None:
                while time.monotonic() < end:
                    lines = (await client.get("/metrics")).text.splitlines()
                    queue.extend(float(line.split()[-1]) for line in lines if line.startswith("tercet_queue_texts{"))
                    await asyncio.sleep(0.25)

            await asyncio.gather(look(), *(be_a_client() for _ in range(10 * NUM_CLIENTS)))
            start = time.monotonic()
            while (await ask(client, texts[:1]))[0] != 200:
                await asyncio.sleep(0.05)
            return time.monotonic() - start

    before = server.rss_mb
    recovered = asyncio.run(scene())
    grown = server.rss_mb - before
    seen = {"codes": dict(codes), "most_texts_waiting": max(queue), "recovered_s": recovered, "grown_mb": grown}
    promised = {
        "only 200, 429 and 503": set(codes) <= {200, 429, 503},
        "some requests are refused": codes[429] > 0,
        "the queue within its limit": max(queue) <= max_queue,
        "recovers within 2 s": recovered < 2,
        "memory flat (100 MB)": grown < 100,
    }
    result.check("overload", seen, promised)


def fuzz(server: Server, num: int, log: Path, result: Result) -> None:
    """Send requests that are wrong in many ways; half of them are damaged ones that were right."""
    draw = random.Random(0)
    right = [
        ("/v1/embeddings", {"input": ["a", "b"], "model": "model", "dimensions": 8, "encoding_format": "float"}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}}),
        ("/rerank", {"query": "a", "texts": ["b", "c"], "return_text": True}),
        ("/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
        ("/tokenize", {"inputs": ["a", ""]}),
    ]
    odd = [
        None,
        True,
        -1,
        0,
        1e400,
        2**70,
        "",
        "\0",
        "\ud800",
        "🙂" * 50,
        [],
        {},
        [[]],
        ["a"] * 3000,
        {"text": 1},
        "x" * 9000,
    ]

    def damaged() -> tuple[str, bytes]:
        path, body = draw.choice(right)
        body = dict(body)
        body[draw.choice([*body, "other"])] = draw.choice(odd)
        raw = bytearray(json.dumps(body).encode())
        for _ in range(draw.choice([0, 0, 1, 5])):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        return path, bytes(raw[: draw.choice([len(raw), len(raw), draw.randrange(len(raw) + 1)])])

    codes: Counter[int] = Counter()

    async def scene(num: int) -> None:
        async with httpx.AsyncClient(base_url=server.address, timeout=ASK_S) as client:

            async def be_a_client(share: int) -> None:
                for _ in range(share):
                    path, raw = damaged()
                    if draw.random() < 0.1:
                        path = "/" + "".join(draw.choices("abc/.%20v1{}", k=draw.randrange(30)))
                    headers = {"content-type": draw.choice(["application/json"] * 9 + ["text/plain"])}
                    headers["x-request-id"] = "".join(draw.choices("ab .\t", k=5)).strip()
                    method = draw.choice(["POST"] * 8 + ["GET", "PUT", "DELETE", "OPTIONS"])
                    codes[(await client.request(method, path, content=raw, headers=headers)).status_code] += 1

            await asyncio.gather(*(be_a_client(num // NUM_CLIENTS) for _ in range(NUM_CLIENTS)))

    asyncio.run(scene(min(num, 800)))
    before = server.rss_mb
    asyncio.run(scene(num))
    grown = server.rss_mb - before
    promised = {
        "no 5xx": max(codes) < 500,
        "no traceback": "Traceback" not in log.read_text(),
        "memory flat (100 MB)": grown < 100,
        "ready": is_there(f"{server.address}/ready"),
    }
    result.check("fuzz", {"codes": dict(sorted(codes.items())), "grown_mb": grown}, promised)


def many_texts(server: Server, num: int, result: Result) -> None:
    """Send many short texts, and see whether memory grows after the first tenth."""
    words = " ".join(load_sentences(200)[0]).split()
    codes: Counter[int] = Counter()

    async def scene(num: int) -> None:
        draw, left = random.Random(num), [256] * (num // 256)
        async with httpx.AsyncClient(base_url=server.address, timeout=ASK_S) as client:

            async def be_a_client() -> None:
                while left:
                    texts = [" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(left.pop())]
                    codes[(await ask(client, texts))[0]] += 1

            await asyncio.gather(*(be_a_client() for _ in range(4)))

    asyncio.run(scene(num // 10))
    before = server.rss_mb
    start = time.monotonic()
    asyncio.run(scene(num - num // 10))
    grown = server.rss_mb - before
    seen = {"num": num, "codes": dict(codes), "seconds": time.monotonic() - start, "grown_mb": grown}
    result.check("texts", seen, {"only 200": set(codes) == {200}, "memory flat (100 MB)": grown < 100})


def restarts(model: str, num: int, folder: Path, result: Result) -> None:
    """Kill the server while it computes and start it at the same port, many times."""
    port, started = free_port(), []
    for _ in range(num):
        start = time.monotonic()
        with running(tercet_command(model, port), port, folder / "restarts.log") as server:
            started.append(time.monotonic() - start)
            try:
                httpx.post(f"{server.address}/v1/embeddings", json={"input": ["a b c"] * 2000}, timeout=0.05)
            except httpx.TimeoutException:
                pass
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait(20)
    result.check("restarts", {"num": len(started), "start_s": spread(started)}, {"all start": len(started) == num})


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sentences, two rounds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--rivals", default="", help="st: a plain server around sentence-transformers")
    parser.add_argument("--sentences", type=int, help="2,048, with --quick 256")
    parser.add_argument("--rounds", type=int, help="5, with --quick 2")
    parser.add_argument("--asked", type=int, help="requests for each latency and round: 200, with --quick 20")
    parser.add_argument("--overload", type=float, metavar="SECONDS", help="only: ten times the clients for so long")
    parser.add_argument("--fuzz", type=int, metavar="NUM", help="only: so many damaged requests")
    parser.add_argument("--texts", type=int, metavar="NUM", help="only: so many short texts")
    parser.add_argument("--restarts", type=int, metavar="NUM", help="only: killed and started so often")
    options = parser.parse_args()
    options.sentences = options.sentences or (256 if options.quick else 2048)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.asked = options.asked or (20 if options.quick else 200)
    return options


def main() -> None:
    """Measure what was asked for, print and write."""
    import tempfile

    from tercet.encoder.folder.names import find_folder

    options, result = parse(), Result()
    options.rival_model = find_folder(options.model)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        long = (options.overload, options.fuzz, options.texts)
        if any(long):
            port, log, max_queue = free_port(), folder / "server.log", 1024
            with running(tercet_command(options.model, port, "--max-queue", str(max_queue)), port, log) as server:
                if options.overload:
                    overload(server, options.overload, max_queue, result)
                if options.fuzz:
                    fuzz(server, options.fuzz, log, result)
                if options.texts:
                    many_texts(server, options.texts, result)
        if options.restarts:
            restarts(options.model, options.restarts, folder, result)
        if not any(long) and not options.restarts:
            compare(options, folder, result)
    if options.json:
        options.json.write_text(json.dumps(vars(result), indent=2) + "\n", encoding="utf-8")
    if result.broken:
        sys.exit("\n".join(["broken promises:", *result.broken]))


if __name__ == "__main__":
    main()
