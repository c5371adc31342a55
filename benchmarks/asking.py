"""Clients of a server: as many requests as it can take, or one at a time."""

import asyncio
import json
import random
import time
from collections.abc import Sequence

import httpx

from servers import Server

NUM_CLIENTS, TEXTS_A_REQUEST = 8, 32
ASK_S = 120.0
_JSON = {"content-type": "application/json"}


def body_of(texts: Sequence[str]) -> bytes:
    """Return a request for the vectors of texts."""
    return json.dumps({"model": "model", "input": list(texts), "encoding_format": "base64"}).encode()


def client_of(server: Server, *, num_connections: int = 100) -> httpx.AsyncClient:
    """Return a client of a server."""
    limits = httpx.Limits(max_connections=num_connections, max_keepalive_connections=num_connections)
    return httpx.AsyncClient(base_url=server.address, timeout=ASK_S, limits=limits)


async def ask(client: httpx.AsyncClient, path: str, body: bytes) -> tuple[int, float]:
    """Ask for vectors; return the status (0 where there is none) and the seconds."""
    start = time.perf_counter()
    try:
        answer = await client.post(path, content=body, headers=_JSON)
        return answer.status_code, time.perf_counter() - start
    except httpx.TransportError:
        return 0, time.perf_counter() - start


async def saturate(server: Server, texts: list[str]) -> float:
    """Return the seconds for all texts, from several clients at once."""
    bodies = [body_of(texts[i : i + TEXTS_A_REQUEST]) for i in range(0, len(texts), TEXTS_A_REQUEST)]
    async with client_of(server) as client:
        start = time.perf_counter()

        async def be_a_client() -> None:
            while bodies:
                status, _ = await ask(client, server.path, bodies.pop())
                if status != 200:
                    raise SystemExit(f"{server.address} answered {status}")

        await asyncio.gather(*(be_a_client() for _ in range(NUM_CLIENTS)))
        return time.perf_counter() - start


async def latencies(server: Server, texts: list[str], num: int, *, loaded: bool) -> list[float]:
    """Return the milliseconds of requests with one sentence, alone or beside clients that never stop."""
    draw = random.Random(0)
    bodies = [body_of(draw.sample(texts, min(TEXTS_A_REQUEST, len(texts)))) for _ in range(64)]
    async with client_of(server) as client:

        async def be_busy() -> None:
            while True:
                await ask(client, server.path, draw.choice(bodies))

        busy = [asyncio.create_task(be_busy()) for _ in range(NUM_CLIENTS if loaded else 0)]
        try:
            await ask(client, server.path, body_of(texts[:1]))
            return [1000 * (await ask(client, server.path, body_of([draw.choice(texts)])))[1] for _ in range(num)]
        finally:
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
