"""The pages for a browser: each one file that fetches nothing from elsewhere."""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Page:
    """Something that is always answered the same."""

    content: bytes
    media_type: str
    headers: dict[str, str] = field(default_factory=dict)


def main_page() -> Page:
    """Return the page at `/`: search, a heat map, a 2-D map."""
    return _html(
        _read("page.html").replace("/* style */", _read("style.css")).replace("/* script */", _read("page.js"))
    )


def docs_page(document: Mapping[str, Any]) -> Page:
    """Return the OpenAPI document as a page to read."""
    same: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            what = json.dumps({key: value for key, value in operation.items() if key != "operationId"})
            same.setdefault(what, []).append((method, path, operation))
    parts = [_operation(each, document) for each in same.values()]
    text = _read("docs.html").replace("/* style */", _read("style.css"))
    return _html(text.replace("<!-- operations -->", "\n".join(parts)))


def _read(name: str) -> str:
    return files("tercet.serving").joinpath("assets", name).read_text(encoding="utf-8")


def _html(text: str) -> Page:
    """Return a page that may run what stands in it and nothing else, and talk to this server alone."""
    allowed = {
        kind: " ".join(
            f"'sha256-{b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"
            for inside in re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        )
        or "'none'"
        for kind in ("script", "style")
    }
    policy = (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(text.encode(), "text/html", {"content-security-policy": policy})


def _operation(same: list[tuple[str, str, Mapping[str, Any]]], document: Mapping[str, Any]) -> str:
    """Return what one function answers, at one or several addresses."""
    (method, path, operation), *others = same
    needs_key = '<span class="key">needs the API key</span>' if operation.get("security") else ""
    parts = [f'<section aria-labelledby="{_anchor(method, path)}">']
    parts.append(
        f'<h2 id="{_anchor(method, path)}"><b>{method.upper()}</b> <code>{escape(path)}</code> {needs_key}</h2>'
    )
    also = f" Also at {', '.join(f'<code>{escape(path)}</code>' for _, path, _ in others)}." if others else ""
    parts.append(f"<p>{_prose(operation['summary'])}{also}</p>")
    body = operation.get("requestBody")
    if body:
        for schema in _schemas(body["content"]["application/json"]["schema"], document):
            parts.append(_fields(schema, document))
    codes = ", ".join(f"{code} {escape(each['description'])}" for code, each in sorted(operation["responses"].items()))
    parts.append(f"<p><small>Status: {codes}</small></p></section>")
    return "\n".join(parts)


def _schemas(schema: Mapping[str, Any], document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [_resolve(each, document) for each in schema.get("anyOf", [schema])]


def _resolve(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" in schema:
        found: Mapping[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def _fields(schema: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    required = schema.get("required", [])
    rows = []
    for name, each in schema.get("properties", {}).items():
        inner = _resolve(each, document)
        default = each.get("default")
        more = ", required" if name in required else "" if default is None else f", default {json.dumps(default)}"
        if "properties" in inner:
            what = ", ".join(
                f"<code>{escape(key)}</code> ({_kind(value)})" for key, value in inner["properties"].items()
            )
        else:
            what = _kind(each)
        text = _prose(each.get("description", ""))
        rows.append(f"<dt><code>{escape(name)}</code> <small>{what}{escape(more)}</small></dt><dd>{text}</dd>")
    return f"<p><small>{_prose(schema.get('description', ''))}</small></p><dl>{''.join(rows)}</dl>"


def _kind(schema: Mapping[str, Any]) -> str:
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return escape(" or ".join(_one_kind(each) for each in kinds))


def _one_kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"]).lower()
    if schema.get("type") == "array":
        return f"list of {_one_kind(schema['items'])}s"
    return {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(schema.get("type", ""), "")


def _prose(text: str) -> str:
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(" ".join(text.split())))


def _anchor(method: str, path: str) -> str:
    return re.sub(r"\W+", "-", f"{method}{path}").strip("-")
