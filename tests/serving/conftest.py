"""Servers in this process: an application without a port, and one with sockets in a thread."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.testclient import TestClient

from tercet.serving.app import make_app
from tercet.serving.protocol import configure

CLIENT_TIMEOUT_S = 1.0


@pytest.fixture(scope="session")
def encoder(tiny):
    """A tiny random T5 with a projection, which reads 64 tokens."""
    return tiny("t5", projection=16)


@pytest.fixture
def client(encoder):
    """Asks an application with all settings at their defaults."""
    with TestClient(make_app({"tiny": encoder})) as client:
        yield client


@contextmanager
def running(app, *, client_timeout_s=CLIENT_TIMEOUT_S):
    """Serve an application at a port of this machine, in a thread; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        options = configure(app, client_timeout_s=client_timeout_s, drain_s=5, max_connections=64)
        server = uvicorn.Server(uvicorn.Config(**options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def live(encoder):
    """The address of a server with sockets."""
    with running(make_app({"tiny": encoder, "again": encoder})) as address:
        yield address


def wait_until(condition, *, seconds=10):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
