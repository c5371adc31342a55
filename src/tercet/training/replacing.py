"""What a run of other settings would replace in a folder: nothing that is finished goes without being asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tercet.errors import OutputError
from tercet.evaluation.evaluate import RESULTS
from tercet.training.recipe import Recipe
from tercet.training.runs import ENCODER, RECIPE, read_record

NO_CHANGE = ("cache", "log_every", "checkpoint_every")
"""Settings that change nothing about a stage's output."""

_NUM_SHOWN = 3


def check_replaced(folder: Path, recipe: Recipe) -> None:
    """Raise OutputError if a folder holds a finished run of another recipe.

    Args:
        folder: The folder.
        recipe: What is to be run in it.
    """
    if not (folder / ENCODER).exists():
        return
    try:
        earlier = yaml.safe_load((folder / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return  # its stages say whether they are of other settings
    old, new = (dict(_settings(content)) for content in (earlier, yaml.safe_load(recipe.as_yaml())))
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if changed:
        shown = [f"{name} was {old.get(name)}, now {new.get(name)}" for name in changed[:_NUM_SHOWN]]
        more = [f"{len(changed) - _NUM_SHOWN} more"] if len(changed) > _NUM_SHOWN else []
        raise would_be_lost(folder, "; ".join(shown + more))


def would_be_lost(folder: Path, why: str) -> OutputError:
    """Return the error that says what a run of other settings would replace."""
    results = read_record(folder / RESULTS)
    scores = {name: average["score"] for name, average in results.get("averages", {}).items()}
    scores = scores or {name: result["score"] for name, result in results.get("tasks", {}).items()}
    shown = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
    lost = f"{ENCODER}/ and {RESULTS} ({shown})" if shown else f"{ENCODER}/"
    return OutputError(
        f"{folder}: holds a finished run of other settings ({why}). Its {lost} would be replaced; what its stages made "
        "is kept. Name a new folder, or take --force."
    )


def _settings(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting that decides what a run makes, by its path."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in NO_CHANGE and not (name == "" and key in ("name", "evaluate")):
                yield from _settings(value, f"{name}.{key}" if name else str(key))
    elif isinstance(content, list) and content and all(isinstance(each, dict) for each in content):
        for number, each in enumerate(content):
            yield from _settings(each, f"{name}.{each.get('name', number)}")
    else:
        yield name, content
