"""Leaks: training texts that stand in the evaluation data."""

from dataclasses import dataclass, field
from pathlib import Path

from tercet.errors import InputError
from tercet.progress import progress_bar
from tercet.recipe import Recipe
from tercet.rows.kinds import texts_of
from tercet.rows.settings import RowSettings
from tercet.rows.sources import open_rows
from tercet.rows.words import as_words, is_looked_for, texts_below
from tercet.stages.stage import REFERENCE

_EXAMPLES = 5


@dataclass
class Leaks:
    """What was found in one file or dataset of training rows."""

    num_texts: int = 0
    """How many different texts were looked for."""

    num_short: int = 0
    """How many more have too few words."""

    num_found: int = 0
    examples: list[str] = field(default_factory=list)
    """Some of the texts that were found."""


def find_leaks(recipe: Recipe, data: Path, *, progress: bool = False) -> dict[str, Leaks]:
    """Look for every text of a recipe's rows in the evaluation data.

    Texts are compared as words: capital letters, punctuation and blanks make no difference.

    Args:
        recipe: Whose files and datasets are read, each once, without the rows that its `leaks` leave out.
        data: The folder; every cell of every file below it counts as an evaluation text.
        progress: Whether a bar is shown.

    Returns:
        What was found, by the path of each source.

    Raises:
        InputError: The folder is not there, or holds nothing.
    """
    known = texts_below(data)
    if not known:
        raise InputError(f"{data}: holds no evaluation texts. Name the folder with --data.")
    sources = _sources(recipe)
    found: dict[str, Leaks] = {}
    with progress_bar("leaks", total=len(sources), unit="sources", enabled=progress) as advance:
        for path, rows in sources.items():
            found[path] = leaks = Leaks()
            seen: set[str] = set()
            for row in open_rows(rows, kind="triplets"):
                for text in texts_of(row):
                    words = as_words(text)
                    if words in seen:
                        continue
                    seen.add(words)
                    if not is_looked_for(words):
                        leaks.num_short += 1
                        continue
                    leaks.num_texts += 1
                    if words in known:
                        leaks.num_found += 1
                        leaks.examples += [text] if len(leaks.examples) < _EXAMPLES else []
            advance(1)
    return found


def _sources(recipe: Recipe) -> dict[str, RowSettings]:
    """Return the rows of each file and dataset, without what all stages that read it leave out."""
    found: dict[str, RowSettings] = {}
    for stage in recipe.stages:
        rows = getattr(stage.settings, "rows", None)
        if not isinstance(rows, RowSettings):
            continue
        for source in rows.sources:
            if not source.path.startswith(REFERENCE):
                leaks = [path for path in found.get(source.path, rows).leaks if path in rows.leaks]
                whole = source.model_copy(update={"weight": None, "share": 1.0})
                found[source.path] = RowSettings(sources=[whole], leaks=leaks)
    return found
