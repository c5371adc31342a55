"""Checks of single values: is it text, a number, yes or no? Everything that reads texts asks here."""

import math
from collections.abc import Callable
from typing import Any

from tercet.storage.texts import has_half_pair

Check = Callable[[Any, str], str]
"""Takes a value and the field that it stands in, and returns the text that it is."""


class BadRecord(Exception):
    """A record gives no row; says why, and the fix."""


class BadField(BadRecord):
    """One value of a record is of no use.

    Args:
        field: Which field it stands in.
        problem: What is wrong with it, and the fix.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field!r} {problem}")
        self.field = field
        self.problem = problem


def any_text(value: Any, field: str) -> str:
    """Return a value that is a text, which may be empty.

    Raises:
        BadField: It is none.
    """
    if not isinstance(value, str):
        raise BadField(field, f"is {'null' if value is None else type(value).__name__}, not text. Write a string.")
    if has_half_pair(value):
        raise BadField(field, "has half a surrogate pair. Write whole characters.")
    return value


def full_text(value: Any, field: str) -> str:
    """Return a value that is a text and not empty.

    Raises:
        BadField: It is none.
    """
    if value == "" or (isinstance(value, str) and value.isspace()):
        raise BadField(field, "is empty. Fix the row.")
    return any_text(value, field)


def number(value: Any, field: str) -> float:
    """Return a value that is a finite number.

    Raises:
        BadField: It is none.
    """
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise BadField(field, f"is {value!r}, not a number. Fix the row.")
    return found


def verdict(value: Any, field: str) -> bool:
    """Return a value that is 0 or 1, as yes or no.

    Raises:
        BadField: It is neither.
    """
    if not is_verdict(value):
        raise BadField(field, f"is {value!r}, not 0 or 1. Fix the row.")
    return float(value) == 1


def is_verdict(value: Any) -> bool:
    """Return whether a value is 0 or 1, as a number or as text."""
    try:
        return float(value) in (0.0, 1.0)
    except (TypeError, ValueError, OverflowError):
        return False
