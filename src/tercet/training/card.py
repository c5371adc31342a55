"""The model card of a run's encoder: how it was trained, and what it scores."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tercet.encoder.folder.card import CARD, public_name, table
from tercet.evaluation.evaluate import Evaluation
from tercet.storage.files import atomic_write
from tercet.training.recipe import Recipe, Stage

_TITLE = "# A sentence encoder\n"
_HOME = "https://github.com/tercet-embeddings/tercet"
_SHOWN = ("batch", "epochs", "learning_rate", "temperature", "max_tokens")


def write_card(
    source: Path, target: Path, recipe: Recipe, records: Mapping[str, Any], found: Evaluation | None
) -> None:
    """Write the card of an encoder.

    Args:
        source: The encoder of the last stage, with the card that every encoder has.
        target: The run's encoder.
        recipe: What was run.
        records: The record of each stage.
        found: Its scores, where the recipe evaluates.
    """
    file = source / CARD
    if not file.exists():  # an earlier version wrote the encoder
        return
    text = file.read_text(encoding="utf-8").replace(_TITLE, f"# {recipe.name}\n\n{_TITLE[2:].strip()}.\n", 1)
    parts = [text, *_training(recipe.stages, records), *_scores(found)]
    content = "\n".join(parts)
    card = target / CARD
    if not card.exists() or card.read_text(encoding="utf-8") != content:
        with atomic_write(card, "w") as stream:
            stream.write(content)


def _training(stages: Sequence[Stage], records: Mapping[str, Any]) -> Iterator[str]:
    yield f"## Training\n\nTrained with [Tercet]({_HOME}), in these stages.\n"
    rows = []
    for stage in stages:
        record, settings = records.get(stage.name, {}), stage.dump()
        shown = [f"{name} {settings[name]}" for name in _SHOWN if settings.get(name) is not None]
        steps = record.get("notes", {}).get("num_steps")
        shown += [f"{steps:,} steps"] if steps else []
        start = public_name(settings["start"]) if isinstance(settings.get("start"), str) else ""
        rows.append((stage.name, stage.kind, start, ", ".join(_sources(record)), ", ".join(shown)))
    yield table(("stage", "kind", "starts from", "learns from", "settings"), rows)


def _sources(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sources of a stage's rows, with how many rows each gave."""
    inputs = record.get("inputs") or {}
    for part in inputs.values():
        for source in part.get("sources", []) if isinstance(part, dict) else []:
            num = source.get("num_rows")
            yield public_name(str(source["path"])) + (f" ({num:,} rows)" if num else "")


def _scores(found: Evaluation | None) -> Iterator[str]:
    if found is None or not found.tasks:
        return
    yield "## Scores\n"
    rows = [
        (name, result["metric"], f"{result['score']:.2f}", f"{result['num']:,}", str(result.get("protocol", "")))
        for name, result in found.tasks.items()
    ]
    rows += [
        (f"average {name}", "", f"{average['score']:.2f}", f"{average['num_tasks']} of {average['of']} tasks", "")
        for name, average in found.averages.items()
    ]
    yield table(("task", "metric", "score", "items", "protocol"), rows)
