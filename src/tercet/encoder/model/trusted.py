"""JSON files of a model folder: read as data, and refused where they want code to be run."""

from pathlib import Path
from typing import Any

from tercet.errors import ModelError
from tercet.storage import files


def read_json(path: Path, *, kind: type | None = None) -> Any:
    """Read a JSON file of a model folder.

    Args:
        path: The file.
        kind: What it has to hold (`dict`, `list`); anything where None.

    Raises:
        ModelError: The file is missing, is not JSON, or holds something else.
    """
    return files.read_json(path, kind=kind, raised=ModelError, fix="Fetch or save the model again.")


def refuse_code(folder: Path, name: str) -> None:
    """Make sure that a file of settings names no code to be run: of the model's own, or of a kernel on the hub.

    Raises:
        ModelError: It does. Without that code the model would be another one.
    """
    file = folder / name
    settings = read_json(file, kind=dict) if file.exists() else {}
    for key in ("auto_map", "attn_implementation", "_attn_implementation"):
        if key in settings and settings[key] not in (None, "eager", "sdpa"):
            raise ModelError(f"{file}: {key} wants foreign code, which is never run. Take a model that needs none.")
