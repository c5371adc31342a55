"""A corpus that everyone has: the documentation strings of their own Python."""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the first line and the rest of most documentation strings in Python's standard library."""
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first, _, rest = (ast.get_docstring(node) or "").partition("\n")
                if len(first.split()) > 4 and len(rest.split()) > 10:
                    yield first, " ".join(rest.split())
