"""HTTP connections that are closed when a client takes too long, in the head of a request or in reading the answer."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_LEAST_BYTES = 16_384
"""What a client has to read of an answer within the timeout."""


class Impatient(H11Protocol):
    """uvicorn's protocol with two more timeouts. The body of a request has its own, in `Bodies`."""

    timeout_s: float
    _idle_since: float
    _looking: asyncio.TimerHandle | None = None
    _blocked: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to look whether a request comes."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """End both timers."""
        for timer in (self._looking, self._blocked):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """From now on, the next request is waited for."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client reads more slowly than is written: it has to go on reading."""
        super().pause_writing()
        self._watch_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._blocked is not None:
            self._blocked.cancel()
        super().resume_writing()

    def _watch_reading(self, num_bytes: int) -> None:
        def check() -> None:
            left = self.transport.get_write_buffer_size()
            if left > num_bytes - _LEAST_BYTES:
                self.transport.abort()
            else:
                self._watch_reading(left)

        self._blocked = self.loop.call_later(self.timeout_s, check)

    def _look(self) -> None:
        waits_for_head = self.cycle is None or self.cycle.response_complete
        if not waits_for_head or self.transport.get_write_buffer_size():  # the answer is still on its way
            self._idle_since = self.loop.time()
        if self.loop.time() - self._idle_since >= self.timeout_s:
            self.transport.abort()
        else:
            self._looking = self.loop.call_later(self.timeout_s / 4, self._look)


def configure(app: Any, *, client_timeout_s: float, drain_s: float, max_connections: int) -> dict[str, Any]:
    """Return how uvicorn is set up."""
    return {
        "app": app,
        "http": type("Impatient", (Impatient,), {"timeout_s": client_timeout_s}),
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": drain_s,
        "limit_concurrency": max_connections,
        "h11_max_incomplete_event_size": 16 * 2**10,
    }
