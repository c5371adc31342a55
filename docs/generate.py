"""What mkdocs builds besides the pages in this folder: the reference of commands and settings, and files of the root.

A page may hold `<!-- settings: tercet.module.Class -->`, in place of which the table of that class stands. A comma and
the name of a second class leave out the settings that it has, too.
"""

import re
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
MARKER = re.compile(r"<!-- settings: ([\w.]+)(?:, ([\w.]+))? -->")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from code, and those at the root of the repository."""
    pages = {"reference/cli.md": cli_page(), "reference/settings.md": settings_page()}
    pages |= {to: _at_root((ROOT / name).read_text(encoding="utf-8")) for name, to in FROM_ROOT.items()}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put tables in the place of their markers."""
    return MARKER.sub(lambda found: _marked(found[1], found[2]), markdown)


def _marked(name: str, besides: str | None) -> str:
    return settings_table(_named(name), besides=_named(besides) if besides else None, base="reference/settings.md")


def _at_root(markdown: str) -> str:
    """Return a page of the root with links as they are from docs/."""
    renamed = re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(r"\]\(([A-Z]+\.md)", lambda link: f"]({FROM_ROOT.get(link[1], link[1])}", renamed)


# --- commands ---------------------------------------------------------------------------------------------------------


def cli_page() -> str:
    """Return the reference of all commands, from what their `--help` is made from."""
    from tercet.cli import app

    parts = ["# Command line", "Every command has `--help`, and is a function of the same name in [Python](python.md)."]
    for path, command in _commands(typer.main.get_command(app), ["tercet"]):
        parts += _command(" ".join(path), command)
    return "\n\n".join(parts) + "\n"


def _commands(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, [*path, name])
    else:
        yield path, command


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    shown = " ".join([name, *(_placeholder(each) for each in arguments), "[OPTIONS]"])
    yield f"## {name}"
    yield command.help.replace("\b", "").strip()
    yield f"```sh\n{shown}\n```"
    rows = [(f"`{_placeholder(each)}`", _help(each), "required" if each.required else "") for each in arguments]
    for option in sorted(options, key=lambda option: not option.required):
        flags = ", ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts])
        kind = "" if option.is_flag else f" {_kind(option)}"
        rows.append((flags + kind, _help(option), "required" if option.required else _default(option)))
    yield table(("argument or option", "", "default"), rows)
    examples = [line.strip() for line in (command.epilog or "").splitlines() if line.startswith("    ")]
    if examples:
        yield "```sh\n" + "\n".join(examples) + "\n```"


def _placeholder(argument: Any) -> str:
    name = (argument.metavar or argument.name).strip("[]").upper()
    name = name.removesuffix("...") + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _kind(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    inner = get_args(annotation)[0] if get_origin(annotation) is list else annotation
    if get_origin(inner) is Literal:
        return " or ".join(f"`{each}`" for each in get_args(inner))
    named = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER"}.get(inner.__name__, inner.__name__.upper())
    return f"*{option.metavar or named}*"


def _help(parameter: Any) -> str:
    several = " May be given several times." if parameter.param_type_name == "option" and parameter.multiple else ""
    return (getattr(parameter, "help", None) or "") + several


def _default(option: Any) -> str:
    default = option.default
    if default is None or callable(default) or default in ("", [], ()):
        return ""
    return ("on" if default else "off") if isinstance(default, bool) else f"`{default}`"


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """Return the reference of all settings that a recipe can have."""
    from tercet.training.recipe import RecipeFile
    from tercet.training.stages.kinds import KINDS
    from tercet.training.stages.trained import TrainedSettings

    parts = [
        "# Settings",
        "What a [recipe](../training.md) can have. `--set PATH=VALUE` changes any of these settings.",
        "## At the top of a recipe",
        settings_table(RecipeFile),
        "## Every stage that trains an encoder",
        f"`{'`, `'.join(name for name, kind in KINDS.items() if issubclass(kind.settings, TrainedSettings))}`.",
        settings_table(TrainedSettings),
    ]
    inner = set(_inner(RecipeFile)) | set(_inner(TrainedSettings))
    for name, kind in KINDS.items():
        trained = issubclass(kind.settings, TrainedSettings)
        parts += [f"## The stage {name}", settings_table(kind.settings, besides=TrainedSettings if trained else None)]
        if trained and not set(kind.settings.model_fields) - set(TrainedSettings.model_fields):
            parts[-1] = "No settings but those of every stage that trains an encoder."
        inner |= set(_inner(kind.settings))
    for each in sorted(inner, key=lambda each: each.__name__):
        parts += [f"## {each.__name__}", _first_paragraph(each), settings_table(each)]
    return "\n\n".join(parts) + "\n"


def settings_table(settings: type[BaseModel], *, besides: type[BaseModel] | None = None, base: str = "") -> str:
    """Return the table of a class of settings: key, default, and the text under the field."""
    known = besides.model_fields if besides is not None else {}
    rows = [
        (f"`{name}`", _type(field.annotation, base), _value(field), " ".join((field.description or "").split()))
        for name, field in sorted(settings.model_fields.items(), key=lambda item: not item[1].is_required())
        if name not in known or known[name].description != field.description
    ]
    return table(("setting", "type", "default", ""), rows)


def _value(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default if field.default is not PydanticUndefined else None
    if isinstance(default, BaseModel):
        return "`{}`"
    return "`null`" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(annotation: Any, base: str) -> str:
    """Return what a value may be, in words."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}]({base}#{annotation.__name__.lower()})"
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(each, base) for each in inner if each is not type(None))
    if origin is list:
        return f"list of {_type(inner[0], base)}"
    if origin is dict:
        return "mapping"
    if origin is tuple:
        return f"{len(inner)} numbers"
    if hasattr(annotation, "__metadata__"):
        return _type(annotation.__origin__, base)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}
    return names.get(annotation, "any")


def _inner(settings: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield the classes of settings that a class has as values, at any depth."""
    for field in settings.model_fields.values():
        yield from _models(field.annotation)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        yield from _inner(annotation)
    for part in get_args(annotation):
        yield from _models(part)


def _first_paragraph(settings: type[BaseModel]) -> str:
    return (settings.__doc__ or "").strip().split("\n\n")[0]


def _named(name: str) -> type[BaseModel]:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
