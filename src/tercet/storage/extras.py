"""Packages that come with an extra of Tercet: imported when they are needed, and one wording where they are missing."""

from importlib import import_module
from typing import Any

from tercet.errors import SettingError, TercetError


def require(
    module: str, extra: str, *, needed_by: object | None = None, raised: type[TercetError] = SettingError
) -> Any:
    """Return a module that comes with an extra.

    Args:
        module: Its name.
        extra: The extra that installs it.
        needed_by: What cannot be used without it, where the setting itself does not say so.
        raised: The error.

    Raises:
        TercetError: It is not installed; the message says what to run.
    """
    try:
        return import_module(module)
    except ImportError as error:
        why = "" if needed_by is None else f", and {needed_by} needs it"
        raise raised(f"{module}: is not installed{why}. Run: pip install 'tercet[{extra}]'") from error
