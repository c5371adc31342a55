"""`tercet serve` as a process: told to stop, killed, started again."""

import json
import os
import signal
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest
from in_thread import wait_until


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture
def start(launch, models, tmp_path, port):
    """Return a context with a running server: its process id, and what it was when it has ended."""

    @contextmanager
    def run(*options):
        args = ["serve", "--model", f"tiny={models['t5']}", "--port", port, *options]
        with launch(*args, folder=tmp_path) as (pid, done):
            try:
                wait_until(lambda: answers(port), seconds=60)
                yield pid, done
            finally:
                if answers(port):
                    os.kill(pid, signal.SIGKILL)

    return run


def answers(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready", timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def test_a_server_that_is_told_to_stop_answers_what_is_under_way(start, port):
    texts, answered = ["two dogs run through deep snow"] * 2000, []

    def ask():
        answered.append(httpx.post(f"http://127.0.0.1:{port}/v1/embeddings", json={"input": texts}, timeout=120))

    asking = threading.Thread(target=ask)
    with start("--batch-tokens", "256", "--drain", "120") as (pid, done):
        asking.start()
        wait_until(lambda: is_waiting(port) or answered)
        assert not answered
        os.kill(pid, signal.SIGTERM)
        asking.join(120)
    assert answered[0].status_code == 200
    assert len(answered[0].json()["data"]) == 2000
    assert done.returncode == 0
    assert done.stderr.startswith(f"Serving tiny (256 dimensions) at http://127.0.0.1:{port}")
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["path"], last["status"], last["num_texts"]) == ("/v1/embeddings", 200, 2000)


def is_waiting(port):
    lines = httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()
    return any(line.startswith("tercet_queue_texts{") and not line.endswith(" 0.0") for line in lines)


def test_a_server_that_was_killed_starts_again_at_its_port(start, port):
    for _ in range(3):
        with start() as (pid, done), httpx.Client() as client:  # whose connection is open when the server dies
            assert client.get(f"http://127.0.0.1:{port}/health").status_code == 200
            os.kill(pid, signal.SIGKILL)
        assert done.returncode == -signal.SIGKILL
