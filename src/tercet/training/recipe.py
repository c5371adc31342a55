"""The recipe: a YAML file that says where to start, a list of stages, and what to evaluate."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, field_validator

from tercet.encoder.model.settings import EncoderSettings
from tercet.errors import InputError, SettingError
from tercet.storage.assignments import parse_assignment
from tercet.storage.documents import MAX_YAML_BYTES, parse_yaml, read_document
from tercet.storage.settings import Settings, checked
from tercet.training.stages.kinds import KINDS
from tercet.training.stages.stage import REFERENCE, StageSettings
from tercet.training.stages.trained import EncoderStartSettings, StartSettings

_START = {"start", "tokenizer", "revision", "convert_pickle"}
"""What a stage takes from the top of the recipe where it does not name a start of its own."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_OWN = "TERCET_"
"""What the variables begin with that every recipe may use."""

_VARIABLE = re.compile(r"\$\{(\w+)\}")

_DATA = "DATA"
"""The variable that stands for the folder with the evaluation data."""


class RecipeFile(Settings):
    """What a recipe's file may have at its top."""

    name: str | None = None
    """What results call the model; the file's name where null."""

    seed: int = Field(default=0, ge=0)
    """What fresh weights, the order of rows and dropout are drawn with."""

    start: str | None = None
    """What stages start from that do not say it themselves."""

    tokenizer: str | None = None
    """The tokenizer of a start that has none: a model folder, a hub id or an embedded name."""

    revision: str | None = None
    """The branch, tag or commit of `start` on the hub."""

    convert_pickle: bool = False
    """Whether a `start` that has only pickled weights may be converted, weights only."""

    encoder: EncoderSettings = EncoderSettings()
    """Readout, projection, prompt, max_tokens and so on, for all stages."""

    stages: list[dict[str, Any]] = Field(min_length=1)
    """Each has a `name` and one kind with its settings."""

    evaluate: list[str] = Field(default=[])
    """What the final encoder is scored on: tasks and groups."""

    @field_validator("evaluate", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else value or []


@dataclass(frozen=True)
class Stage:
    """One stage, with all its settings."""

    name: str
    kind: str
    settings: StageSettings

    def references(self) -> list[str]:
        """Return the names of the stages whose output this one uses."""
        return [name.removeprefix(REFERENCE) for name in self.settings.names() if name.startswith(REFERENCE)]

    def dump(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return self.settings.model_dump(mode="json")


@dataclass(frozen=True)
class Recipe:
    """A recipe that was read and checked: every stage has every setting."""

    name: str
    seed: int
    stages: tuple[Stage, ...]
    evaluate: tuple[str, ...]

    def as_yaml(self) -> str:
        """Return the recipe as a file that can be read again."""
        stages = [{"name": stage.name, stage.kind: stage.dump()} for stage in self.stages]
        content = {"name": self.name, "seed": self.seed, "stages": stages, "evaluate": [*self.evaluate]}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def read_recipe(
    path: str | Path, *, changes: Sequence[str] = (), env: Sequence[str] = (), data: str | Path | None = None
) -> Recipe:
    """Read a recipe's file.

    Args:
        path: The file.
        env: Variables of the environment that it may use besides those that begin with `TERCET_`.
        changes: Settings in place of the file's, as `PATH=VALUE`: `seed=3`, `stages.0.batch=256`, `stages.nli.batch=9`.
        data: The folder with the evaluation data, which `${DATA}` stands for; `$TERCET_DATA/eval` where None.

    Raises:
        InputError: There is no such file, or it is not YAML.
        SettingError: A key is unknown or a value does not fit; the message has the key's path.
    """
    path = Path(path)
    try:
        content = parse_yaml(read_document(path, max_bytes=MAX_YAML_BYTES))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}). Name a recipe's file.") from error
    except ValueError as error:
        raise InputError(f"{path}: is not YAML ({error}). Fix the file.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: is not a mapping. A recipe has keys such as stages.")
    return make_recipe(content, default_name=path.stem, changes=changes, env=env, data=data)


def make_recipe(
    content: dict[str, Any],
    *,
    default_name: str,
    changes: Sequence[str] = (),
    env: Sequence[str] = (),
    data: str | Path | None = None,
) -> Recipe:
    """Make a recipe of what its file would hold.

    Args:
        content: Keys and values.
        default_name: What results call the model where the content does not say.
        changes: Settings in place of the content's: see `read_recipe`.
        env: Variables of the environment that it may use: see `read_recipe`.
        data: The folder with the evaluation data: see `read_recipe`.

    Raises:
        SettingError: A key is unknown or a value does not fit; the message has the key's path.
    """
    content = _unshared(content)
    for change in changes:
        _change(content, change)
    folder = Path(os.environ.get("TERCET_DATA", "")) / "eval" if data is None else Path(data)
    allowed = {name: value for name, value in os.environ.items() if name.startswith(_OWN) or name in env}
    top = checked(RecipeFile, _with_variables(content, {**allowed, _DATA: str(folder)}), [])
    stages: list[Stage] = []
    for number, given in enumerate(top.stages):
        stage = _check_stage(given, number, top)
        known = [earlier.name for earlier in stages]
        if stage.name in known:
            raise SettingError(f"stages.{number}.name {stage.name!r}: another stage has it. Take another name.")
        for name in stage.references():
            if name not in known:
                raise SettingError(
                    f"stages.{stage.name}: {REFERENCE}{name} is no earlier stage. "
                    f"Earlier ones: {', '.join(known) or 'none'}."
                )
        stages.append(stage)
    return Recipe(top.name or default_name, top.seed, tuple(stages), tuple(top.evaluate))


def _unshared(value: Any) -> Any:
    """Copy mappings and lists; what YAML's aliases share is copied each time, so that it can be changed apart."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _check_stage(given: dict[str, Any], number: int, top: RecipeFile) -> Stage:
    kinds = [key for key in given if key != "name"]
    where = f"stages.{given.get('name', number)}"
    unknown = [key for key in kinds if key not in KINDS]
    if unknown:
        raise SettingError(f"{where}.{unknown[0]}: there is no such kind of stage. Known: {', '.join(KINDS)}.")
    if len(kinds) != 1:
        raise SettingError(f"{where}: has {len(kinds)} kinds. A stage has exactly one of: {', '.join(KINDS)}.")
    kind = kinds[0]
    name = str(given.get("name", kind))
    if not _NAME.fullmatch(name):
        raise SettingError(f"stages.{number}.name {name!r}: does not fit. Take letters, digits, dots and hyphens.")
    values = given[kind]
    settings_class = KINDS[kind].settings
    if isinstance(values, dict) and issubclass(settings_class, StartSettings):
        start = {} if values.get("start") else top.model_dump(include=_START)
        values = {**start, **{key: value for key, value in values.items() if key not in _START or value is not None}}
        if issubclass(settings_class, EncoderStartSettings):
            own = values.get("encoder") or {}
            values["encoder"] = {**top.encoder.given(), **own} if isinstance(own, dict) else own
    return Stage(name, kind, checked(settings_class, values, ["stages", name, kind]))


def _change(content: dict[str, Any], change: str) -> None:
    """Put one value of `PATH=VALUE` into a recipe."""
    path, value = parse_assignment(change)
    place: Any = content
    keys = [key.strip() for key in path.split(".")]
    if keys[0] == "stages" and len(keys) > 1:
        place = _stage_of(content, keys[1])
        keys = keys[2:]
        kind = _kind_of(place)
        settings = KINDS[kind].settings.model_fields if kind else ()
        if keys and (keys[0] in settings or keys[0] not in ("name", *KINDS)):  # the kind may be left out
            keys = [kind, *keys]
    if not all(keys) or not keys:
        raise SettingError(f"--set {change}: {path!r} is no setting. Write a path such as stages.0.batch.")
    for key in keys[:-1]:
        if not isinstance(place, list) and not isinstance(place.get(key), dict | list):
            place[key] = {}
        place = place[_index(place, key, change)]
        if not isinstance(place, dict | list):
            raise SettingError(f"--set {change}: {place!r} has no settings of its own. Set a mapping in its place.")
    place[_index(place, keys[-1], change)] = value


def _index(place: Any, key: str, change: str) -> str | int:
    """Return a key of a mapping, or a number within a list."""
    if not isinstance(place, list):
        return key
    if not key.isdigit() or int(key) >= len(place):
        raise SettingError(f"--set {change}: {key!r} is no place in a list. Take a number below {len(place)}.")
    return int(key)


def _stage_of(content: dict[str, Any], key: str) -> dict[str, Any]:
    given = content.get("stages")
    stages = [stage for stage in given if isinstance(stage, dict)] if isinstance(given, list) else []
    by_name = {str(stage.get("name", _kind_of(stage))): stage for stage in stages}
    if key in by_name:
        return by_name[key]
    if key.isdigit() and int(key) < len(stages):
        return stages[int(key)]
    raise SettingError(
        f"stages.{key}: there is no such stage. Take a number below {len(stages)}, or one of: {', '.join(by_name)}."
    )


def _kind_of(stage: dict[str, Any]) -> str:
    return next((kind for kind in stage if kind in KINDS), "")


def _with_variables(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace `${NAME}` by the variable of that name in all texts."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match[1], variables), value)
    if isinstance(value, list):
        return [_with_variables(item, variables) for item in value]
    if isinstance(value, Mapping):
        return {key: _with_variables(item, variables) for key, item in value.items()}
    return value


def _variable(name: str, variables: Mapping[str, str]) -> str:
    if name in variables:
        return variables[name]
    if name.startswith(_OWN) or name not in os.environ:
        raise SettingError(f"${{{name}}}: the environment has no {name}. Set it: export {name}=...")
    # a recipe of somebody else could send any other one to the hub, in the name of a model
    raise SettingError(f"${{{name}}}: is not for recipes, unless you allow it. Run it with --env {name}.")
