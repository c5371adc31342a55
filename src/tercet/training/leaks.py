"""The verb `data leaks`: training texts that stand in the evaluation data."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.columns import RowKind
from tercet.data.rows.kinds import texts_of
from tercet.data.rows.settings import RowSettings
from tercet.data.rows.words import as_words, files_below, is_any_known, is_looked_for, texts_below, texts_in
from tercet.data.sets.catalogue import scored_files
from tercet.data.sets.folder import data_root
from tercet.errors import InputError
from tercet.storage.progress import progress_bar
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import SentenceSettings, SynthesisSettings
from tercet.training.recipe import Recipe, Stage, read_recipe
from tercet.training.stages.kinds import KINDS
from tercet.training.stages.stage import REFERENCE

_EXAMPLES = 5

_Reading = tuple[RowSettings | SynthesisSettings, RowKind]
"""What a stage reads of one source, and as what."""


@dataclass
class Leaks:
    """What was found in one file or dataset of training rows."""

    num_texts: int = 0
    """How many different texts were looked for."""

    num_short: int = 0
    """How many more have too few words."""

    num_found: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """How many of them stand in each evaluation file."""

    tasks: dict[str, int] = field(default_factory=dict)
    """How many stand in the files of each task."""

    examples: list[str] = field(default_factory=list)
    """Some of the texts that were found."""

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def leaks(
    recipe: str | Path | Recipe,
    *,
    data: str | Path | None = None,
    env: Sequence[str] = (),
    progress: bool = False,
) -> dict[str, Leaks]:
    """Look for every text that a recipe's stages read in the evaluation data.

    Texts are compared as words: capital letters, punctuation and blanks make no difference.

    Args:
        recipe: Whose files and datasets are read as its stages read them, without the rows that `leaks` leave out.
        data: The folder, `$TERCET_DATA/eval` where None; every cell of every file that a task reads is an evaluation
            text. In a folder without such files, every file counts.
        env: Variables of the environment that the recipe may use besides those that begin with `TERCET_`.
        progress: Whether a bar is shown.

    Returns:
        What was found, by the path of each source.

    Raises:
        InputError: The folder is not there, or holds nothing.
    """
    folder = data_root(data)
    scored = scored_files(folder) or {path.relative_to(folder).as_posix(): [] for path in files_below(folder)}
    known = _known_texts(folder, list(scored))
    if not known:
        raise InputError(f"{folder}: holds no evaluation texts. Name the folder with --data.")
    sources = _sources(recipe if isinstance(recipe, Recipe) else read_recipe(recipe, env=env, data=data))
    found: dict[str, Leaks] = {}
    with progress_bar("looking for leaks", total=len(sources), unit="sources", enabled=progress) as advance:
        for path, readings in sources.items():
            found[path] = own = Leaks()
            seen: set[str] = set()
            for text in (text for reading in readings for text in _texts(*reading)):
                words = as_words(text)
                if words in seen:
                    continue
                seen.add(words)
                if not is_looked_for(words):
                    own.num_short += 1
                    continue
                own.num_texts += 1
                if words in known:
                    own.num_found += 1
                    _count(own, known[words], scored)
                    own.examples += [text] if len(own.examples) < _EXAMPLES else []
            advance(1)
    return found


def _known_texts(folder: Path, paths: list[str]) -> dict[str, tuple[str, ...]]:
    """Return all texts of some files, as words, each with the files it stands in."""
    known: dict[str, tuple[str, ...]] = {}
    for path in paths:
        for words in texts_in(folder / path):
            known[words] = (*known.get(words, ()), path)
    return known


def _count(own: Leaks, files: tuple[str, ...], scored: dict[str, list[str]]) -> None:
    """Count a text that was found, once for each file and each task."""
    for file in files:
        own.files[file] = own.files.get(file, 0) + 1
    for task in {task for file in files for task in scored[file]}:
        own.tasks[task] = own.tasks.get(task, 0) + 1


def _sources(recipe: Recipe) -> dict[str, list[_Reading]]:
    """Return by the path of each file and dataset how the stages read it: each way once."""
    found: dict[str, list[_Reading]] = {}
    for stage in recipe.stages:
        for path, reading in _readings(stage):
            if not path.startswith(REFERENCE):
                readings = found.setdefault(path, [])
                readings += [reading] if reading not in readings else []
    return found


def _readings(stage: Stage) -> Iterator[tuple[str, _Reading]]:
    """Yield the paths of a stage's sources, and how it reads each of them; of a share the whole."""
    settings, whole = stage.settings, {"weight": None, "share": 1.0}
    kind: RowKind = KINDS[stage.kind].rows
    if isinstance(settings, SynthesisSettings):
        for source in settings.sentences:
            yield source.path, (settings.model_copy(update={"sentences": [source.model_copy(update=whole)]}), kind)
        return
    for name, read_as in (("rows", kind), ("texts", "texts")):
        rows = getattr(settings, name, None)
        if not isinstance(rows, RowSettings):
            continue
        for source in rows.sources:
            alone = RowSettings(
                sources=[source.model_copy(update=whole)],
                clean=rows.clean,
                leaks=rows.leaks,
                on_error=rows.on_error,
                max_bad_fraction=rows.max_bad_fraction,
            )
            yield source.path, (alone, read_as)


def _texts(settings: RowSettings | SynthesisSettings, kind: RowKind) -> Iterator[str]:
    """Yield the texts that a stage reads."""
    if isinstance(settings, RowSettings):
        for row in open_rows(settings, kind=kind):
            yield from texts_of(row)
        return
    known = texts_below(*settings.leaks)
    for sentence in Sentences(SentenceSettings(**settings.part(SentenceSettings))):
        if not is_any_known([sentence], known):
            yield sentence
