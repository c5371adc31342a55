"""Settings as they stand on a command line: `--set KEY=VALUE`."""

from collections.abc import Iterable
from typing import Any

from tercet.errors import SettingError
from tercet.storage.documents import parse_json


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Read what follows `--set` on a command line: `KEY=VALUE`, each key once.

    Raises:
        SettingError: One has no `=`.
    """
    return dict(map(parse_assignment, assignments))


def parse_assignment(assignment: str) -> tuple[str, Any]:
    """Return the key and the value of `KEY=VALUE`.

    A value is what it looks like: `null`, `true`, a number, JSON, or a list of words such as `[STS12, STSB-dev]`. All
    else is text, prompts such as `query: [X]` among it.

    Raises:
        SettingError: There is no `=`.
    """
    key, equals, text = assignment.partition("=")
    if not equals:
        raise SettingError(f"--set {assignment}: has no value. Write --set {assignment}=VALUE.")
    return key.strip(), _value(text)


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        words = text.strip()
        if words.startswith("[") and words.endswith("]") and not any(sign in words[1:-1] for sign in "[]{}\"':"):
            return [_value(word.strip()) for word in words[1:-1].split(",")]
        return text
