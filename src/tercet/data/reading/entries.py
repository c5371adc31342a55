"""What stands at one place of a file, and the errors that reading it can end in."""

from typing import Any, NamedTuple

from tercet.errors import InputError


class Entry(NamedTuple):
    """What stands at one place of a file: a record, or what is wrong with it."""

    line: int
    """Where it starts, from 1; in Parquet the number of the row."""

    place: int
    """Where it can be read again: the byte, or in Parquet the row from 0."""

    record: dict[str, Any] | None
    problem: str = ""
    raw: bytes = b""
    """Its first line."""


def unreadable(path: object, error: OSError) -> InputError:
    """Return the error that says why the system does not give a file."""
    return InputError(f"{path}: {error.strerror or error}. Check the name and its permissions.")


def changed(path: object) -> InputError:
    """Return the error for a file that is not as it was."""
    return InputError(f"{path}: changed while it was read. Start again when it is complete.")
