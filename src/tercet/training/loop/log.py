"""The log of a training: a JSON object a line, and nothing twice where a killed run goes on."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tercet.storage.files import append_to


class Log:
    """A file that lines are added to.

    Args:
        path: The file; None where nothing is written.
        on_line: What else gets every line.
    """

    def __init__(self, path: Path | None, on_line: Callable[[dict[str, Any]], None] | None) -> None:
        self.path = path
        self.on_line = on_line

    def rewind(self, num_bytes: int) -> None:
        """Forget what was written after a position: it will be written again."""
        if self.path is not None:
            with append_to(self.path) as stream:
                stream.truncate(min(num_bytes, self.position()))

    def position(self) -> int:
        """Return how many bytes there are."""
        return self.path.stat().st_size if self.path is not None else 0

    def add(self, line: dict[str, Any]) -> None:
        """Write a line; numbers that are not finite are null."""
        if self.path is None:
            return
        finite = {key: value if _is_fit(value) else None for key, value in line.items()}
        with append_to(self.path) as stream:
            stream.write(json.dumps(finite, ensure_ascii=False) + "\n")
        if self.on_line is not None:
            self.on_line(finite)


def _is_fit(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
