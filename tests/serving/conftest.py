"""Servers in this process: an application without a port, and one with sockets in a thread."""

import pytest
from in_thread import running
from starlette.testclient import TestClient

from tercet.serving.app import make_app


@pytest.fixture(scope="session")
def encoder(tiny):
    """A tiny random T5 with a projection, which reads 64 tokens."""
    return tiny("t5", projection=16)


@pytest.fixture
def client(encoder):
    """Asks an application with all settings at their defaults."""
    with TestClient(make_app({"tiny": encoder})) as client:
        yield client


@pytest.fixture(scope="session")
def live(encoder):
    """The address of a server with sockets."""
    with running(make_app({"tiny": encoder, "again": encoder})) as address:
        yield address
