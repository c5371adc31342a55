"""Long checks of the server: overload, damaged requests, very many texts, kills. Each has an end in count or time.

A check returns what was seen and what was promised of it.
"""

import asyncio
import json
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from asking import NUM_CLIENTS, TEXTS_A_REQUEST, ask, body_of, client_of, saturate
from sentences import load_sentences
from servers import Server, is_there, running, tercet
from tercet.evaluation.timing import spread

Seen = tuple[dict[str, Any], dict[str, bool]]
"""What was seen, and which promises were kept."""

TIMES = 10
"""Overload is so many times what the server can compute."""

MAX_QUEUE = 1024
FLAT_MB = 50.0
"""Memory that grows by less after the first tenth is flat: allocators keep some of it."""

LOOK_S = 0.25


@asynccontextmanager
async def looking(look: Coroutine[Any, Any, None]) -> Any:
    """Run something beside a block, and end it with the block."""
    task = asyncio.create_task(look)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def watch_memory(server: Server, seen: list[float]) -> None:
    """Note the server's memory again and again."""
    while True:
        seen.append(server.rss_mb)
        await asyncio.sleep(LOOK_S)


def growth(memory: list[float]) -> dict[str, float]:
    """Return what was held after the first tenth, at most from there on, and at the end."""
    tenth = max(1, len(memory) // 10)
    return {"after_a_tenth": memory[tenth - 1], "most": max(memory[tenth - 1 :]), "end": memory[-1]}


def is_flat(memory: dict[str, float]) -> bool:
    """Return whether memory stays where it was after the first tenth."""
    return memory["most"] - memory["after_a_tenth"] < FLAT_MB


def overload(server: Server, seconds: float) -> Seen:
    """Send ten times as much as can be computed, at a fixed rate whatever is answered."""
    texts = load_sentences(2000)[0]
    per_s = len(texts) / min(asyncio.run(saturate(server, texts)) for _ in range(2))
    codes: Counter[int] = Counter()
    waits: list[float] = []
    queue: list[float] = []
    memory: list[float] = []

    async def look_at_queue(client: httpx.AsyncClient) -> None:
        while True:
            lines = (await client.get("/metrics")).text.splitlines()
            queue.extend(float(line.split()[-1]) for line in lines if line.startswith("tercet_queue_texts{"))
            await asyncio.sleep(LOOK_S)

    async def scene() -> float:
        draw = random.Random(0)
        bodies = [body_of(draw.choices(texts, k=TEXTS_A_REQUEST)) for _ in range(256)]
        async with client_of(server, num_connections=400) as client, client_of(server) as other:

            async def send() -> None:
                status, waited = await ask(client, server.path, draw.choice(bodies))
                codes[status] += 1
                if status == 200:
                    waits.append(waited)

            async with looking(look_at_queue(other)), looking(watch_memory(server, memory)):
                await send_at_rate(send, TIMES * per_s / TEXTS_A_REQUEST, seconds)
            start = time.monotonic()
            while (await ask(other, server.path, body_of(texts[:1])))[0] != 200:
                await asyncio.sleep(0.05)
            return time.monotonic() - start

    recovered = asyncio.run(scene())
    seen = {
        "texts_per_s_alone": per_s,
        "times_asked": codes.total() * TEXTS_A_REQUEST / seconds / per_s,
        "texts_per_s_answered": codes[200] * TEXTS_A_REQUEST / seconds,
        "codes": dict(codes),
        "longest_wait_of_answered_s": max(waits),
        "most_texts_waiting": max(queue),
        "recovered_s": recovered,
        "memory_mb": growth(memory),
    }
    promised = {
        "only 200, 429 and 503": set(codes) <= {200, 429, 503},
        f"asked for {TIMES} times as much": seen["times_asked"] > 0.95 * TIMES,
        "the queue within its limit": max(queue) <= MAX_QUEUE,
        "recovers within 2 s": recovered < 2,
        "memory flat": is_flat(seen["memory_mb"]),
    }
    return seen, promised


async def send_at_rate(send: Any, per_s: float, seconds: float) -> None:
    """Call something so many times a second, without waiting for what it called before; then wait for all."""
    start, num = time.monotonic(), 0
    tasks: set[asyncio.Task[None]] = set()
    while (now := time.monotonic() - start) < seconds:
        for _ in range(int(now * per_s) - num):
            task = asyncio.create_task(send())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            num += 1
        await asyncio.sleep(0.005)
    await asyncio.gather(*tasks)


RIGHT: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"input": ["a", "b"], "model": "model", "dimensions": 8, "encoding_format": "float"}),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}}),
    ("/rerank", {"query": "a", "texts": ["b", "c"], "return_text": True}),
    ("/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
    ("/tokenize", {"inputs": ["a", ""]}),
]
ODD: list[Any] = [None, True, -1, 0, 1e400, 2**70, "", "\0", "\ud800", "🙂" * 50, [], {}, [[]], ["a"] * 3000]
ODD += [{"text": 1}, "x" * 9000, [[1, 2]], {"a": {"b": {}}}]


def damaged(draw: random.Random) -> tuple[str, bytes]:
    """Return a request with an odd field, and some bytes of it changed or cut off."""
    path, right = draw.choice(RIGHT)
    body = right | {draw.choice([*right, "other"]): draw.choice(ODD)}
    raw = bytearray(json.dumps(body).encode())
    for _ in range(draw.choice([0, 0, 1, 5])):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    if draw.random() < 0.1:
        path = "/" + "".join(draw.choices("abc/.%20v1{}", k=draw.randrange(30))).lstrip("/")
    return path, bytes(raw[: draw.choice([len(raw), len(raw), draw.randrange(len(raw) + 1)])])


async def send_damaged(client: httpx.AsyncClient, draw: random.Random) -> int:
    """Send a damaged request, and return the status; 0 where there is none."""
    path, raw = damaged(draw)
    headers = {"content-type": draw.choice(["application/json"] * 9 + ["text/plain"])}
    headers["x-request-id"] = "".join(draw.choices("ab .\t", k=5)).strip()
    method = draw.choice(["POST"] * 8 + ["GET", "PUT", "DELETE", "OPTIONS"])
    try:
        return (await client.request(method, path, content=raw, headers=headers)).status_code
    except httpx.TransportError:
        return 0


async def send_noise(server: Server, draw: random.Random) -> int:
    """Send what is hardly HTTP, and return the status of the answer; -1 for a connection that is only closed."""
    path, raw = damaged(draw)
    head = bytearray(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(raw)}\r\n\r\n".encode())
    for _ in range(draw.randrange(1, 8)):
        head[draw.randrange(len(head))] = draw.randrange(256)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
    try:
        writer.write(bytes(head) + raw)
        if writer.can_write_eof():
            writer.write_eof()
        words = (await asyncio.wait_for(reader.read(64), 60)).split()
        return int(words[1]) if len(words) > 1 else -1
    except ConnectionError:
        return -1
    finally:
        writer.close()


def fuzz(server: Server, num: int, log: Path) -> Seen:
    """Send requests that are wrong in many ways, one in ten of them hardly HTTP."""
    draw = random.Random(0)
    codes: Counter[int] = Counter()
    memory: list[float] = []

    async def scene() -> None:
        async with client_of(server) as client, looking(watch_memory(server, memory)):

            async def be_a_client() -> None:
                for _ in range(num // NUM_CLIENTS):
                    noisy = draw.random() < 0.1
                    codes[await (send_noise(server, draw) if noisy else send_damaged(client, draw))] += 1

            await asyncio.gather(*(be_a_client() for _ in range(NUM_CLIENTS)))

    asyncio.run(scene())
    seen = {"num": codes.total(), "codes": dict(sorted(codes.items())), "memory_mb": growth(memory)}
    promised = {
        "no 5xx": max(codes) < 500,
        "every request is answered": codes[0] == 0,
        "no traceback": "Traceback" not in log.read_text(),
        "memory flat": is_flat(seen["memory_mb"]),
        "ready": is_there(f"{server.address}/ready"),
    }
    return seen, promised


def many_texts(server: Server, num: int) -> Seen:
    """Send many short texts, hardly any of them twice."""
    words = " ".join(load_sentences(200)[0]).split()
    codes: Counter[int] = Counter()
    memory: list[float] = []
    left = [256] * (num // 256) + [num % 256] * (num % 256 > 0)

    async def scene() -> None:
        draw = random.Random(0)
        async with client_of(server) as client, looking(watch_memory(server, memory)):

            async def be_a_client() -> None:
                while left:
                    texts = [" ".join(draw.choices(words, k=draw.randint(1, 4))) for _ in range(left.pop())]
                    codes[(await ask(client, server.path, body_of(texts)))[0]] += 1

            await asyncio.gather(*(be_a_client() for _ in range(4)))

    start = time.monotonic()
    asyncio.run(scene())
    seen = {"num": num, "codes": dict(codes), "seconds": time.monotonic() - start, "memory_mb": growth(memory)}
    return seen, {"only 200": set(codes) == {200}, "memory flat": is_flat(seen["memory_mb"])}


def restarts(model: str, num: int, log: Path) -> Seen:
    """Kill the server while it computes and start it at the same port, many times."""
    command, started = tercet(model), []
    for _ in range(num):
        start = time.monotonic()
        with running(command, log) as server:
            started.append(time.monotonic() - start)
            with computing(server):
                os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait(20)
    return {"num": len(started), "start_s": spread(started)}, {"every start works": len(started) == num}


@contextmanager
def computing(server: Server) -> Iterator[None]:
    """Keep a connection open on which the server owes an answer."""
    body = body_of(["a b c " * 50] * 2000)
    head = f"POST {server.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])), timeout=20) as connection:
        connection.sendall(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
        while not any(
            line.startswith("tercet_queue_texts{") and not line.endswith(" 0.0")
            for line in httpx.get(f"{server.address}/metrics").text.splitlines()
        ):
            time.sleep(0.01)
        yield
