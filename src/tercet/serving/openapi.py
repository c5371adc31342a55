"""The OpenAPI document: what the table of endpoints says, for programs."""

from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

import tercet
from tercet.serving import shapes
from tercet.serving.endpoints import Endpoint

_REF = "#/components/schemas/{model}"

_TEXT = {"/metrics": ("Counts and times, in Prometheus' format.", "text/plain")}


def make_document(endpoints: Sequence[Endpoint], *, open_paths: Collection[str], needs_key: bool) -> dict[str, Any]:
    """Return the document.

    Args:
        endpoints: The table.
        open_paths: Paths that need no key.
        needs_key: Whether all others do.
    """
    schemas = models_json_schema([(shapes.Error, "serialization")], ref_template=_REF)[1]["$defs"]
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        for path in endpoint.paths:
            operation = _operation(endpoint, path, schemas)
            _add_key(operation, path, open_paths, needs_key)
            paths[path] = {endpoint.method.lower(): operation}
    for path, (summary, kind) in _TEXT.items():
        answer = {"description": "OK", "content": {kind: {"schema": {"type": "string"}}}}
        operation = {"summary": summary, "operationId": path.strip("/"), "responses": {"200": answer}}
        _add_key(operation, path, open_paths, needs_key)
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tercet", "version": tercet.__version__, "description": "Sentence embeddings over HTTP."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(endpoint: Endpoint, path: str, schemas: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": "OK", "content": _json(_schema(endpoint.response, "serialization", schemas))}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{path}".replace("/", "_").replace("{", "").replace("}", ""),
        "responses": {"200": answer} | {str(code): _error(code) for code in (*endpoint.codes, 429, 500)},
    }
    if 503 in endpoint.codes and endpoint.is_open:
        operation["responses"]["503"] = answer | {"description": HTTPStatus(503).phrase}
    if endpoint.request is not None:
        operation["requestBody"] = {
            "required": True,
            "content": _json(_schema(endpoint.request, "validation", schemas)),
        }
    if "{model}" in path:
        name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        operation["parameters"] = [name]
    return operation


def _add_key(operation: dict[str, Any], path: str, open_paths: Collection[str], needs_key: bool) -> None:
    if needs_key and path not in open_paths:
        operation["security"] = [{"key": []}]
        operation["responses"]["401"] = _error(401)


def _schema(shape: Any, mode: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a shape, and put those that it refers to with the others."""
    schema = TypeAdapter(shape).json_schema(ref_template=_REF, mode=mode)
    schemas |= schema.pop("$defs", {})
    if "title" in schema and "properties" in schema:
        schemas[schema["title"]] = schema
        return {"$ref": _REF.format(model=schema["title"])}
    return dict(schema)


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _error(code: int) -> dict[str, Any]:
    return {"description": HTTPStatus(code).phrase, "content": _json({"$ref": _REF.format(model="Error")})}
