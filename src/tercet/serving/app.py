"""The ASGI application: endpoints, their document, the page, and what is around them all."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tercet.encoder.encoder import Encoder
from tercet.serving.answering import Bodies, make_route
from tercet.serving.endpoints import ENDPOINTS, Serving
from tercet.serving.guard import Keys, Watch, on_http_error, on_refusal
from tercet.serving.limits import Limits
from tercet.serving.metrics import Metrics
from tercet.serving.openapi import make_document
from tercet.serving.pages import Page, docs_page, main_page
from tercet.serving.refusals import Refusal
from tercet.serving.served import Served
from tercet.storage.choices import OnTruncate

OPEN = ("/", "/docs", "/openapi.json", *(path for each in ENDPOINTS if each.is_open for path in each.paths))
"""What needs no key: it says nothing of what is served."""


def make_app(
    encoders: Mapping[str, Encoder],
    *,
    precision: str = "exact",
    on_truncate: OnTruncate = "count",
    limits: Limits | None = None,
    api_keys: Sequence[str] = (),
    cors: Sequence[str] = (),
    local: bool = False,
) -> Starlette:
    """Return the application.

    Args:
        encoders: The models by the names that requests call them by.
        precision: What they compute in.
        on_truncate: Whether texts that are too long are counted or refused.
        limits: How much it takes, and how long it waits.
        api_keys: The keys, one of which a request must have; none where there is none.
        cors: Web pages of which origins may ask.
        local: Whether requests must be for this machine by their Host header.
    """
    limits, metrics = limits or Limits(), Metrics()
    models: dict[str, Served] = {}
    for name, encoder in encoders.items():
        models[name] = Served(
            name,
            encoder,
            precision=precision,
            on_truncate=on_truncate,
            limits=limits,
            watch=lambda batch, name=name: metrics.watch(name, batch),  # type: ignore[misc]
        )
        metrics.watch_queue(models[name])
    serving = Serving(models, metrics, limits, created=int(time.time()))
    bodies = Bodies(limits)
    document = orjson.dumps(make_document(ENDPOINTS, open_paths=OPEN, needs_key=bool(api_keys)))
    routes = [
        Route("/", _fixed(main_page())),
        Route("/docs", _fixed(docs_page(orjson.loads(document)))),
        Route("/openapi.json", _fixed(Page(document, "application/json"))),
        Route("/metrics", _metrics(metrics)),
    ]
    for endpoint in ENDPOINTS:
        function = make_route(endpoint, serving, bodies)
        for path in endpoint.paths:
            routes.append(Route(path.replace("{model}", "{model:path}"), function, methods=[endpoint.method]))
    paths = [route.path for route in routes]
    middleware = [Middleware(Watch, metrics=metrics, paths=paths, max_requests=limits.max_requests)]
    if cors:
        allowed = {"allow_methods": ["GET", "POST"], "allow_headers": ["authorization", "content-type"]}
        middleware.append(Middleware(CORSMiddleware, allow_origins=list(cors), **allowed))  # type: ignore[arg-type]
    middleware.append(Middleware(Keys, keys=api_keys, open_paths=OPEN, local=local))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        for served in models.values():
            served.close(timeout_s=5)

    handlers = {Refusal: on_refusal, HTTPException: on_http_error}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)
    app.state.serving = serving
    app.router.redirect_slashes = False
    return app


def _fixed(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_request: Request) -> Response:
        return Response(page.content, headers=page.headers, media_type=page.media_type)

    return answer


def _metrics(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_request: Request) -> Response:
        return Response(metrics.render(), media_type=metrics.content_type)

    return answer
