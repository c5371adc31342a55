"""The servers under test, each in a process of its own and only on 127.0.0.1.

The peers are infinity, and the plain server that one writes first: FastAPI around sentence-transformers
(`plain_server.py`). Both serve the same model in fp32, as they come.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tercet.encoder.folder.names import find_folder
from workers import THREADS, limited_to, python_with

HERE = Path(__file__).parent
FASTAPI = ("fastapi>=0.163", "sentence_transformers>=6.2")


@dataclass(frozen=True)
class Server:
    """A server under test."""

    process: subprocess.Popen[str]
    address: str
    path: str
    """Where it gives vectors."""

    @property
    def cpu_s(self) -> float:
        """The CPU time of all its threads until now."""
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @property
    def rss_mb(self) -> float:
        """The memory that it holds now."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@dataclass(frozen=True)
class Command:
    """How a server is started, and where it answers."""

    words: list[str]
    port: int
    path: str = "/v1/embeddings"
    ready: str = "/ready"


def tercet(model: str, *more: str, port: int | None = None) -> Command:
    """Return how `tercet serve` is started: the model is called `model`."""
    port = port or free_port()
    options = ["--model", f"model={model}", "--port", str(port), "--no-access-log", *more]
    return Command([sys.executable, "-m", "tercet", "serve", *options], port)


def plain(model: str, folder: Path) -> Command:
    """Return how the plain server is started; its environment is made in a folder where FastAPI is not here."""
    port, python = free_port(), python_with(FASTAPI, folder / "plain")
    return Command([str(python), str(HERE / "plain_server.py"), str(find_folder(model)), str(port)], port)


def infinity(model: str, folder: Path, python: Path) -> Command:
    """Return how infinity is started, by an interpreter that has `infinity-emb[server,torch]`."""
    port, name = free_port(), folder / "model"
    shutil.copytree(find_folder(model), name)
    _write_for_transformers_4(name)
    options = ["--model-id", str(name), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    options += ["--engine", "torch", "--no-bettertransformer", "--log-level", "error"]
    words = [str(python.parent / "infinity_emb"), "v2", *options]
    return Command(words, port, path="/embeddings", ready="/health")


def _write_for_transformers_4(folder: Path) -> None:
    """Name the tokenizer as transformers 4 does, which infinity 0.0.78 needs."""
    file = folder / "tokenizer_config.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    kept = {key: value for key, value in stored.items() if key.endswith("_token")}
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    file.write_text(json.dumps(kept | named), encoding="utf-8")


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(command: Command, log: Path, *, num_threads: int = THREADS) -> Iterator[Server]:
    """Start a server, yield it when it answers, and stop it."""
    quiet = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    address = f"http://127.0.0.1:{command.port}"
    environment = os.environ | limited_to(num_threads) | quiet
    with (
        log.open("a") as stream,
        subprocess.Popen(command.words, stdout=stream, stderr=stream, text=True, env=environment) as process,
    ):
        try:
            end = time.monotonic() + 180
            while not is_there(address + command.ready):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{' '.join(command.words)}: did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield Server(process, address, command.path)
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
