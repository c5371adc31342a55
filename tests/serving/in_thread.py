"""A server with sockets, in a thread of this process."""

import socket
import threading
import time
from contextlib import contextmanager

import uvicorn

from tercet.serving.protocol import configure


@contextmanager
def running(app, *, client_timeout_s=1.0):
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


def wait_until(condition, *, seconds=10):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
