"""From an HTTP request to an answer: the body within its limits, checked; dropped work where the client goes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tercet.serving.endpoints import Answer, Endpoint, Serving
from tercet.serving.limits import Limits
from tercet.serving.refusals import Refusal, overloaded, token_ids, unavailable
from tercet.serving.shapes import TokenIdsError

_BODIES = 8
"""The bodies of all requests together may hold so many times the largest."""

_DISCARDED = 4
"""Of a body that is too large, so many times the limit are read and thrown away, so that the client hears of it."""


class Bodies:
    """Reads the bodies of requests, and bounds what they hold together.

    Args:
        limits: How large, and how slow.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.num_bytes = 0

    async def read(self, request: Request) -> bytes:
        """Return the body of a request; `release` its length when it is answered.

        Raises:
            Refusal: It is too large (413) or too slow (408), or others hold too much (429).
        """
        try:
            async with asyncio.timeout(self._limits.client_timeout_s):
                return await self._read(request)
        except TimeoutError:
            message = f"The body did not arrive within {self._limits.client_timeout_s:g} s. Send it faster."
            raise Refusal(408, message, code="timeout", headers={"connection": "close"}) from None

    def release(self, num_bytes: int) -> None:
        """Say that a body is no longer held."""
        self.num_bytes -= num_bytes

    async def _read(self, request: Request) -> bytes:
        limit = self._limits.max_body_bytes
        chunks: list[bytes] = []
        num_bytes = 0
        try:
            async for chunk in request.stream():
                num_bytes += len(chunk)
                if num_bytes > limit:
                    self.num_bytes -= sum(map(len, chunks))
                    chunks = []
                    if num_bytes > _DISCARDED * limit:
                        break
                    continue
                if self.num_bytes + len(chunk) > _BODIES * limit:
                    raise overloaded("The server is reading too many large requests", 1)
                chunks.append(chunk)
                self.num_bytes += len(chunk)
            if num_bytes > limit:
                raise Refusal(
                    413,
                    f"The body has more than {limit:,} bytes. Send fewer texts per request.",
                    code="too_large",
                    headers={"connection": "close"},
                )
        except BaseException:
            self.num_bytes -= sum(map(len, chunks))
            raise
        return b"".join(chunks)


def make_route(endpoint: Endpoint, serving: Serving, bodies: Bodies) -> Callable[[Request], Awaitable[Response]]:
    """Return the function that Starlette calls for an endpoint."""
    adapter = None if endpoint.request is None else TypeAdapter(endpoint.request)

    async def route(request: Request) -> Response:
        num_bytes = 0
        try:
            asked: Any = request.path_params.get("model")
            if adapter is not None:
                _check_type(request)
                body = await bodies.read(request)
                num_bytes = len(body)
                asked = _parse(body, adapter)
                del body
            work = endpoint.handler(serving, asked, request.state.id)
            answer = await _while_there(request, work, serving.limits.timeout_s)
        finally:
            bodies.release(num_bytes)
        request.state.note = _note(answer)
        headers = {"x-truncated-texts": str(answer.stats.num_truncated)} if answer.model else None
        content = orjson.dumps(answer.content, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(content, answer.status, headers, media_type="application/json")

    return route


def _note(answer: Answer) -> dict[str, Any]:
    """Return what the log says of an answer: never a text."""
    stats = answer.stats
    counts = {"num_texts": stats.num_texts, "num_tokens": stats.num_tokens, "num_truncated": stats.num_truncated}
    return {"model": answer.model, **counts} if answer.model else {}


async def _while_there(request: Request, work: Awaitable[Any], timeout_s: float) -> Any:
    """Return what comes of work; give it up when the client goes or it takes too long."""
    working = asyncio.ensure_future(work)
    going = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, going}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if going.done():
            raise ClientDisconnect
        raise unavailable(f"The vectors were not computed within {timeout_s:g} s.", code="timeout", retry_after_s=10)
    finally:
        working.cancel()
        going.cancel()
        await asyncio.gather(working, going, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # which a web page elsewhere cannot send without asking first
        message = "The body is not declared as JSON. Send the header Content-Type: application/json."
        raise Refusal(415, message, code="unsupported_media_type")


def _parse(body: bytes, adapter: TypeAdapter[Any]) -> Any:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"The body is not valid JSON ({error}). Send a JSON object.", code="invalid_json") from None
    try:
        return adapter.validate_python(content)
    except ValidationError as error:
        raise _invalid(error, content) from None


def _invalid(error: ValidationError, content: Any) -> Refusal:
    """Return the answer that names the first field that is wrong, without what stands in it."""
    errors = error.errors(include_input=False, include_url=False)
    if isinstance(content, dict):  # of several shapes, the one that is meant
        name = "DocumentsRerankRequest" if "documents" in content else "TextsRerankRequest"
        errors = [each for each in errors if each["loc"][:1] == (name,)] or errors
    # of several shapes, the one that fits best
    first = max(errors, key=lambda each: (len(each["loc"]), each["type"] in ("too_short", "too_long")))
    path = [str(part) for part in first["loc"] if not str(part).endswith("Request")]
    path = [part for part in path if part not in ("str", "list[str]", "constrained-str") and "[" not in part]
    param = path[0] if path else None
    if param and any(isinstance(each.get("ctx", {}).get("error"), TokenIdsError) for each in errors):
        return token_ids(param)
    where = ".".join(path) or "the body"
    fix = "Leave it out." if first["type"] == "extra_forbidden" else "See /docs."
    return Refusal(400, f"{where[:200]}: {_problem(first)}. {fix}", code="invalid_request", param=param and param[:100])


def _problem(error: Any) -> str:
    """Return what pydantic found, in words for those who do not know it."""
    known = {
        "missing": "is missing",
        "extra_forbidden": "is not a field of this request",
        "too_short": "is empty",
        "too_long": "has {actual_length:,} items, and at most {max_length:,} are allowed",
    }
    if error["type"] in known:
        return known[error["type"]].format(**error.get("ctx", {}))
    return str(error["msg"]).removeprefix("Input ")
