"""What the server answers: one function an endpoint, and the table of all."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tercet.encoder.model.arrays import Vectors, unit
from tercet.encoder.model.settings import Embedded, EmbedStats
from tercet.serving import shapes
from tercet.serving.limits import MAX_TEXTS, Limits
from tercet.serving.metrics import Metrics
from tercet.serving.refusals import Refusal
from tercet.serving.served import Served

_AT_ONCE = 128
"""How many vectors are written as text before other requests have a turn."""


@dataclass(frozen=True)
class Serving:
    """What all endpoints know: never anything of a request."""

    models: Mapping[str, Served]
    metrics: Metrics
    limits: Limits
    created: int

    def model(self, name: str | None) -> Served:
        """Return the model that a request names.

        Raises:
            Refusal: None of that name is served.
        """
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            message = f"model: {name[:100]!r} is not served. Use one of: {', '.join(self.models)}."
            raise Refusal(404, message, code="model_not_found", param="model")
        return self.models[name]


@dataclass(frozen=True)
class Answer:
    """What an endpoint answers: something for JSON, or JSON in pieces."""

    content: Any
    status: int = 200
    model: str | None = None
    stats: EmbedStats = field(default_factory=EmbedStats)


Handler = Callable[[Serving, Any, str], Awaitable[Answer]]
"""From what is served, the request and its id."""


@dataclass(frozen=True)
class Endpoint:
    """An address, what is sent there and what comes back."""

    paths: tuple[str, ...]
    summary: str
    handler: Handler
    response: Any
    request: Any = None
    """What a POST sends; None for a GET."""

    is_open: bool = False
    """Whether it needs no API key."""

    codes: tuple[int, ...] = ()
    """Statuses besides 200 and those of all requests."""

    @property
    def method(self) -> str:
        """GET, or POST where something is sent."""
        return "GET" if self.request is None else "POST"


async def embeddings(serving: Serving, request: shapes.EmbeddingsRequest, _id: str) -> Answer:
    """Vectors of texts."""
    served = serving.model(request.model)
    texts = [request.input] if isinstance(request.input, str) else request.input
    embedded = await served.embed(texts, dims=request.dimensions)
    stats = _count(serving, served, embedded)
    as_written = _base64 if request.encoding_format == "base64" else _numbers
    data = []
    for index, vector in enumerate(embedded.vectors):
        data.append({"object": "embedding", "index": index, "embedding": as_written(vector)})
        if index % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    content = {"object": "list", "data": data, "model": served.name, "usage": _usage(stats)}
    return Answer(content, model=served.name, stats=stats)


async def similarity(serving: Serving, request: shapes.SimilarityRequest, _id: str) -> Answer:
    """Cosines of one text with others."""
    served = serving.model(request.model)
    cosines, stats = await _cosines(serving, served, request.inputs.source_sentence, request.inputs.sentences)
    return Answer(cosines.tolist(), model=served.name, stats=stats)


async def rerank(
    serving: Serving, request: shapes.TextsRerankRequest | shapes.DocumentsRerankRequest, request_id: str
) -> Answer:
    """Texts by their cosine with a query, best first."""
    served = serving.model(request.model)
    if isinstance(request, shapes.TextsRerankRequest):
        scores, stats = await _cosines(serving, served, request.query, request.texts, refuse_long=not request.truncate)
        ranked: Any = [
            {"index": i, "score": float(scores[i])} | ({"text": request.texts[i]} if request.return_text else {})
            for i in _best_first(scores)
        ]
        return Answer(ranked, model=served.name, stats=stats)
    scores, stats = await _cosines(serving, served, request.query, request.documents)
    results = [
        {"index": i, "relevance_score": float(scores[i])}
        | ({"document": {"text": request.documents[i]}} if request.return_documents else {})
        for i in _best_first(scores)[: request.top_n]
    ]
    ranked = {"id": request_id, "model": served.name, "results": results, "usage": _usage(stats)}
    return Answer(ranked, model=served.name, stats=stats)


async def tokenize(serving: Serving, request: shapes.TokenizeRequest, _id: str) -> Answer:
    """The tokens that the model reads."""
    served = serving.model(request.model)
    texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    rows, truncated = await served.tokenize(texts)
    tokens = served.encoder.tokens
    before, after = tokens.frame
    answer = []
    for row in rows:
        pieces = zip(row, tokens.pieces(row), strict=True)
        inner = range(len(before), len(row) - len(after))
        answer.append([{"id": i, "text": piece, "special": at not in inner} for at, (i, piece) in enumerate(pieces)])
        await asyncio.sleep(0)
    stats = EmbedStats(len(rows), sum(map(len, rows)), sum(truncated))
    return Answer(answer, model=served.name, stats=stats)


async def models(serving: Serving, _request: None, _id: str) -> Answer:
    """All models of this server."""
    return Answer({"object": "list", "data": [_describe(serving, served) for served in serving.models.values()]})


async def one_model(serving: Serving, name: str, _id: str) -> Answer:
    """One model that is served."""
    return Answer(_describe(serving, serving.model(name)))


async def health(serving: Serving, _request: None, _id: str) -> Answer:
    """Whether the server is alive: 503 where an inference thread has died or hangs."""
    return _status(
        {
            name: "ok" if served.batcher.is_alive(serving.limits.stuck_s) else "the inference thread is dead or hangs"
            for name, served in serving.models.items()
        }
    )


async def ready(serving: Serving, _request: None, _id: str) -> Answer:
    """Whether each model has computed a vector within the last seconds."""
    problems = await asyncio.gather(*(served.check_ready() for served in serving.models.values()))
    return _status({name: problem or "ok" for name, problem in zip(serving.models, problems, strict=True)})


async def _cosines(
    serving: Serving, served: Served, query: str, texts: list[str], *, refuse_long: bool = False
) -> tuple[Vectors, EmbedStats]:
    if len(texts) >= MAX_TEXTS:  # the query is one more, and a queue of exactly that many must take it
        first, rest = await asyncio.gather(
            served.embed([query], refuse_long=refuse_long), served.embed(texts, refuse_long=refuse_long)
        )
        stats = _count(serving, served, first) + _count(serving, served, rest)
        return unit(rest.vectors) @ unit(first.vectors)[0], stats
    embedded = await served.embed([query, *texts], refuse_long=refuse_long)
    vectors = unit(embedded.vectors)
    return vectors[1:] @ vectors[0], _count(serving, served, embedded)


def _best_first(scores: Vectors) -> list[int]:
    return [int(i) for i in np.argsort(-scores, kind="stable")]


def _count(serving: Serving, served: Served, embedded: Embedded) -> EmbedStats:
    stats = embedded.stats
    serving.metrics.texts.labels(served.name).inc(stats.num_texts)
    serving.metrics.tokens.labels(served.name).inc(stats.num_tokens)
    serving.metrics.truncated.labels(served.name).inc(stats.num_truncated)
    return stats


def _usage(stats: EmbedStats) -> dict[str, int]:
    return {
        "prompt_tokens": stats.num_tokens,
        "total_tokens": stats.num_tokens,
        "truncated_texts": stats.num_truncated,
    }


def _numbers(vector: Vectors) -> Vectors:
    return vector  # orjson writes it


def _base64(vector: Vectors) -> str:
    return b64encode(vector.astype("<f4", copy=False).tobytes()).decode()


def _describe(serving: Serving, served: Served) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": serving.created,
        "owned_by": "tercet",
        "dimensions": served.encoder.dim,
        "max_tokens": served.encoder.tokens.max_tokens,
    }


def _status(found: dict[str, str]) -> Answer:
    well = all(each == "ok" for each in found.values())
    return Answer({"status": "ok" if well else "not ok", "models": found}, status=200 if well else 503)


_COMPUTING = (400, 404, 408, 413, 415, 429, 503)

ENDPOINTS = (
    Endpoint(
        ("/v1/embeddings",),
        "The vectors of one or more texts, in OpenAI's format.",
        embeddings,
        shapes.Embeddings,
        shapes.EmbeddingsRequest,
        codes=_COMPUTING,
    ),
    Endpoint(
        ("/similarity",),
        "The cosine similarity of one text with others, in the format of text-embeddings-inference.",
        similarity,
        list[float],
        shapes.SimilarityRequest,
        codes=_COMPUTING,
    ),
    Endpoint(
        ("/rerank", "/v1/rerank", "/v2/rerank"),
        "Texts ranked by their similarity to a query, best first. With `texts`, request and answer have the format of "
        "text-embeddings-inference; with `documents`, Cohere's. Scores are cosines of a bi-encoder: fast, and less "
        "exact than a cross-encoder's.",
        rerank,
        list[shapes.RankedText] | shapes.RankedDocuments,
        shapes.TextsRerankRequest | shapes.DocumentsRerankRequest,
        codes=_COMPUTING,
    ),
    Endpoint(
        ("/tokenize",),
        "The tokens that the model reads.",
        tokenize,
        list[list[shapes.Token]],
        shapes.TokenizeRequest,
        codes=_COMPUTING,
    ),
    Endpoint(("/v1/models",), "All models of this server.", models, shapes.Models),
    Endpoint(("/v1/models/{model}",), "One model.", one_model, shapes.Model, codes=(404,)),
    Endpoint(
        ("/health",),
        "Whether the server is alive: every inference thread runs and none hangs.",
        health,
        shapes.Status,
        is_open=True,
        codes=(503,),
    ),
    Endpoint(
        ("/ready",),
        "Whether each model has computed a vector within the last seconds, or can do so now.",
        ready,
        shapes.Status,
        is_open=True,
        codes=(503,),
    ),
)
