"""The verb `recipes`: which recipes come with Tercet, what they make and what they need."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tercet.errors import InputError

_REPOSITORY = Path(__file__).parents[3] / "recipes"
_INSTALLED = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True)
class RecipeInfo:
    """A recipe."""

    path: str
    """What `tercet train` takes."""

    makes: str
    """The row of a paper's table, or the model."""

    start: str
    """The model that it starts from."""

    stages: list[str]
    data: list[str]
    """The files, datasets and models that it reads."""

    notes: list[str]
    """What else its first lines say: variants, and how they are asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def recipes(folder: str | Path | None = None) -> list[RecipeInfo]:
    """Return the recipes in a folder.

    Args:
        folder: The folder; the recipes that come with Tercet where None.

    Raises:
        InputError: There is no such folder, or one of the recipes is not YAML.
    """
    root = Path(folder) if folder is not None else next((p for p in (_INSTALLED, _REPOSITORY) if p.is_dir()), None)
    if root is None or not root.is_dir():
        raise InputError(f"{root or _INSTALLED}: no such folder. Name the folder with the recipes.")
    files = sorted(root.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return [_read(file) for file in files]


def _read(file: Path) -> RecipeInfo:
    text = file.read_text(encoding="utf-8")
    head = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        head.append(line.removeprefix("#").strip())
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{file}: is not YAML ({' '.join(str(error).split())}). Fix the file.") from error
    content = content if isinstance(content, dict) else {}
    stages = content.get("stages") or []
    names = [str(stage.get("name", next(iter(stage)))) for stage in stages]
    return RecipeInfo(
        path=str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file),
        makes=head[0] if head else "",
        start=str(content.get("start", "")),
        stages=names,
        data=list(dict.fromkeys(_sources(stages))),
        notes=head[1:],
    )


def _sources(value: Any, key: str = "") -> Iterator[str]:
    """Yield what is read from outside: texts under keys that name data or models, results of stages (`@x`) aside."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "source" and "target" in value:  # two languages
                continue
            yield from _sources(inner, key if name in ("path", "sources", "model") and key else str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _sources(inner, key)
    elif key in _NAMES_DATA and isinstance(value, str) and not value.startswith("@"):
        yield value


_NAMES_DATA = ("rows", "sentences", "texts", "path", "source", "model", "teachers", "teacher")
