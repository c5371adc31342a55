"""JSON and YAML as data, whoever wrote them: limits on size, depth and number, checked before anything is built."""

import json
import os
import stat
from pathlib import Path
from typing import Any

MAX_BYTES = 2**26
"""The most that is read of a JSON file."""

MAX_YAML_BYTES = 2**16
"""The most that is read of a YAML file: recipes have a few thousand."""

_MAX_DEPTH = 100
_MAX_NODES = 20_000
"""How much a YAML file may hold, aliases written out."""


def read_document(path: Path, *, max_bytes: int) -> bytes:
    """Return the bytes of a file.

    Raises:
        OSError: It cannot be read, or is a device or a pipe, which may have no end.
        ValueError: It is larger.
    """
    # a pipe that nobody writes to would be waited for without end
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError("it is no file, but a device or a pipe")
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return content


def parse_json(content: str | bytes, *, kind: type | None = None) -> Any:
    """Return what a JSON text stands for.

    Args:
        content: The text.
        kind: What it has to be (`dict`, `list`); anything where None.

    Raises:
        ValueError: It is not JSON, is nested without end, has a number of thousands of digits, or is of another kind.
    """
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply: {error}") from error
    if _num_openings(content) > _MAX_DEPTH and _is_deeper(value, _MAX_DEPTH):
        raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
    if kind is not None and not isinstance(value, kind):
        raise ValueError(f"it holds {_NAMES.get(type(value), 'a number')}, not {_NAMES[kind]}")
    return value


def _num_openings(content: str | bytes) -> int:
    if isinstance(content, bytes):
        return content.count(b"[") + content.count(b"{")
    return content.count("[") + content.count("{")


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inner for each in values]
    return bool(level)


_NAMES: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}


def parse_yaml(content: bytes) -> Any:
    """Return what a YAML text stands for, by the safe loader.

    Raises:
        ValueError: It is not YAML, or is too large, too deep, or too much when its aliases are written out.
    """
    import yaml

    if len(content) > MAX_YAML_BYTES:
        raise ValueError(f"it has more than {MAX_YAML_BYTES:,} bytes")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_nodes(yaml.parse(content, Loader=loader))
        return yaml.load(content, Loader=loader)  # noqa: S506 - it is a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def _check_nodes(events: Any) -> None:
    """Check depth and number of nodes before any is built; an alias counts for all that it stands for."""
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

    sizes: dict[str | None, int] = {}
    open_nodes: list[tuple[str | None, int]] = []
    total = 0
    for event in events:
        if isinstance(event, CollectionEndEvent):
            anchor, start = open_nodes.pop()
            sizes[anchor] = total - start
        elif isinstance(event, AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"the alias *{event.anchor} stands within what it stands for, or for nothing")
            total += sizes[event.anchor]
        elif isinstance(event, ScalarEvent):
            total += 1
            sizes[event.anchor] = 1
        elif isinstance(event, CollectionStartEvent):
            open_nodes.append((event.anchor, total))
            total += 1
        if len(open_nodes) > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
        if total > _MAX_NODES:
            raise ValueError(f"it holds more than {_MAX_NODES:,} values, its aliases written out")
