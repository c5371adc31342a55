"""Settings: what they are made from, read from what a user wrote, with errors that name the path of a key."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from tercet.errors import SettingError

_Settings = TypeVar("_Settings", bound=BaseModel)

NUMBER, RULE = "<number>", "<rule>"
"""Tags of the two forms of a setting that is a number, or a rule by which a stage finds it from its rows."""


def number_or_rule(value: Any) -> str:
    """Return the tag of what a user wrote: a mapping is meant as a rule, all else as a number."""
    return RULE if isinstance(value, Mapping | BaseModel) else NUMBER


class Settings(BaseModel):
    """The base of all settings: unknown keys are refused, values are fixed, the text under a field explains it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def checked(settings: type[_Settings], value: Any, where: Sequence[str] = ()) -> _Settings:
    """Return settings from what a user wrote.

    Args:
        settings: What they are to be.
        value: A mapping.
        where: The path of the mapping in what the user wrote.

    Raises:
        SettingError: A key is unknown, missing or has a value that does not fit; the message has its path.
    """
    try:
        return settings.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        parts = [str(part) for part in first["loc"] if part not in (NUMBER, RULE)]
        path = ".".join([*where, *parts]) or "settings"
        if first["type"] == "extra_forbidden":
            known = _fields_at(settings, first["loc"][:-1])
            near = difflib.get_close_matches(str(first["loc"][-1]), known, n=3) or known
            raise SettingError(f"{path}: there is no such setting. Known here: {', '.join(near)}.") from error
        if first["type"] == "missing":
            raise SettingError(f"{path}: is missing. Give it a value.") from error
        given = "" if isinstance(first["input"], dict | list) else f" {first['input']!r}"
        problem = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise SettingError(f"{path}{given}: {problem}. Give another value.") from error


def _fields_at(settings: type[BaseModel], where: Sequence[int | str]) -> list[str]:
    """Return the names of the settings at a place below a model."""
    for part in where:
        if isinstance(part, str) and part in settings.model_fields:
            inner = list(_models_in(settings.model_fields[part].annotation))
            settings = inner[0] if inner else settings
    return list(settings.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
