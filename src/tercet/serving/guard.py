"""Around every request: its id, its key, its log line, its counts, and an answer whatever happens."""

import asyncio
import hashlib
import hmac
import logging
import re
import time
import uuid
from collections.abc import Collection, Sequence

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tercet.serving.metrics import Metrics
from tercet.serving.refusals import Refusal, overloaded, unavailable

logger = logging.getLogger("tercet.serving")
access = logging.getLogger("tercet.serving.access")

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store"}


class Watch:
    """Gives each request an id, counts it, logs it without its texts, and turns errors into answers.

    Args:
        app: What answers.
        metrics: Where it is counted.
        paths: The paths that are counted by name.
        max_requests: How many may be under way.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, paths: Collection[str], max_requests: int) -> None:
        self._app, self._metrics, self._paths, self._max_requests = app, metrics, frozenset(paths), max_requests
        self._num_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status = time.perf_counter(), 499  # a client that has gone, as nginx counts it
        request_id = _id_of(scope)
        scope["state"] = {**scope.get("state", {}), "id": request_id, "note": {}}

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        self._num_requests += 1
        try:
            await self._answer(scope, receive, watched)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:  # the time to drain is over
            if status == 499:
                await respond(unavailable("The server is stopping.", code="stopping"))(scope, receive, watched)
        except Exception:
            logger.exception("request %s failed", request_id)
            if status == 499:
                failed = Refusal(500, "The server failed. Its log names this request by its id.", code="internal_error")
                await respond(failed)(scope, receive, watched)
        finally:
            self._num_requests -= 1
            self._tell(scope, status, time.perf_counter() - start)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._num_requests > self._max_requests:
            refusal = overloaded(f"The server is answering {self._max_requests} requests, which is its limit", 1)
            return await respond(refusal)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        path = _known_path(scope, self._paths)
        self._metrics.requests.labels(path, str(status)).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        if access.isEnabledFor(logging.INFO):
            client = scope.get("client")
            line = {
                "time": time.time(),
                "id": scope["state"]["id"],
                "client": client[0] if client else None,
                "method": scope["method"],
                "path": path,
                "status": status,
                "ms": round(1000 * seconds, 1),
                **scope["state"]["note"],
            }
            access.info(orjson.dumps(line).decode())


class Keys:
    """Lets requests through that have a key, and where the server is for this machine alone, only those for it.

    Args:
        app: What answers.
        keys: The keys; none of them is asked for where there is none.
        open_paths: Paths that need no key.
        local: Whether the host that is asked for must be this machine: a web page elsewhere may have its own name
            lead here.
    """

    def __init__(self, app: ASGIApp, *, keys: Sequence[str], open_paths: Collection[str], local: bool) -> None:
        self._app, self._open_paths, self._local = app, frozenset(open_paths), local
        self._keys = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "http" and (refusal := self._refusal(scope, Headers(scope=scope))):
            return await respond(refusal)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        host = re.sub(r":\d+$", "", headers.get("host", "localhost").lower())
        if self._local and host not in _LOOPBACK:
            message = "host: this server is for localhost only. Use that name, or restart it with --host and a key."
            return Refusal(421, message, code="wrong_host")
        if not self._keys or scope["path"] in self._open_paths:
            return None
        kind, _, key = headers.get("authorization", "").partition(" ")
        # all keys are compared, so that the time tells nothing
        given = _digest(key.strip().encode("latin-1"))
        if sum(hmac.compare_digest(given, each) for each in self._keys) and kind.lower() == "bearer":
            return None
        message = "The API key is missing or wrong. Send the header Authorization: Bearer KEY."
        return Refusal(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def _id_of(scope: Scope) -> str:
    """Return the id that a request gave, or a new one."""
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _ID.fullmatch(given) else uuid.uuid4().hex


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _known_path(scope: Scope, paths: Collection[str]) -> str:
    """Return the path for logs and counts: one of those that are known, or `other`."""
    path = str(scope["path"])
    if path.startswith("/v1/models/"):
        return "/v1/models/{model}"
    return path if path in paths else "other"


def respond(refusal: Refusal) -> Response:
    """Return the answer for a refused request."""
    return Response(orjson.dumps(refusal.to_dict()), refusal.status, refusal.headers, media_type="application/json")


async def on_refusal(_request: Request, refusal: Exception) -> Response:
    """Answer where an endpoint refused."""
    if not isinstance(refusal, Refusal):
        raise refusal
    return respond(refusal)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer where Starlette refused: there is no such path, or it does not take this method."""
    if not isinstance(error, HTTPException):
        raise error
    headers = dict(error.headers or {})
    wrong = {404: "there is no such address", 405: f"this address takes {headers.get('Allow')} only"}
    message = f"{request.method}: {wrong.get(error.status_code, error.detail)}. See /docs."
    return respond(Refusal(error.status_code, message, headers=headers))
