"""The command line only parses, and calls the public verbs."""

import ast
import inspect
import os
from pathlib import Path

import pytest

import tercet
from tercet import SettingError
from tercet.cli import app, data_app, runs_app
from tercet.storage.assignments import parse_assignments

CLI = Path(tercet.__file__).with_name("cli")
VERBS = sorted(name for name in tercet.__all__ if name.islower())


def test_every_command_is_a_verb():
    commands = [
        command.callback.__name__ for typer in (app, data_app, runs_app) for command in typer.registered_commands
    ]
    assert sorted([*commands, "label"]) == VERBS  # which is `adapt --label`


@pytest.mark.parametrize("file", sorted(CLI.glob("*.py")), ids=lambda file: file.stem)
def test_the_command_line_does_nothing_but_parse_and_call_verbs(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    guarded = {inner for block in blocks for inner in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in guarded and (node.module or "").startswith("tercet"):
            allowed = ("tercet", "tercet.errors", "tercet.cli", "tercet.cli.options", "tercet.cli.output")
            assert node.module in (
                *allowed,
                "tercet.storage.choices",
                "tercet.storage.assignments",
                "tercet.storage.threads",
                "tercet.storage.tracebacks",
                "tercet.storage.progress",
            ), node.module
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tercet":
            assert node.attr in VERBS


def test_settings_are_what_they_look_like():
    pairs = ["projection=null", "normalize=false", "max_tokens=64", "readout=enc-mean", "alpha=0.5"]
    assert parse_assignments(pairs) == {
        "projection": None,
        "normalize": False,
        "max_tokens": 64,
        "readout": "enc-mean",
        "alpha": 0.5,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[STSB-dev]", ["STSB-dev"]),
        ("[STS12, STSB-dev]", ["STS12", "STSB-dev"]),
        ('["STS12"]', ["STS12"]),
        ("[0, 0.5]", [0, 0.5]),
        ("STS12,MR", "STS12,MR"),
    ],
)
def test_a_list_of_words_needs_no_quotes(text, value):
    assert parse_assignments([f"evaluate={text}"]) == {"evaluate": value}


@pytest.mark.parametrize("prompt", ["[X] Question: what?", "query: [X]", "passage [X] # tag", " 12 [X] "])
def test_a_prompt_is_text_even_where_it_looks_like_yaml(prompt):
    assert parse_assignments([f"prompt={prompt}"]) == {"prompt": prompt}


def test_a_setting_without_a_value_is_refused():
    with pytest.raises(SettingError, match="--set readout=VALUE"):
        parse_assignments(["readout"])


def test_a_command_has_the_defaults_of_its_function():
    renamed = {"batch_tokens": "max_batch_tokens", "file_format": "format"}
    shown = {"progress", "name"}  # which the command line sets itself
    for command in (command for typer in (app, data_app, runs_app) for command in typer.registered_commands):
        options = inspect.signature(command.callback).parameters
        arguments = inspect.signature(getattr(tercet, command.callback.__name__)).parameters
        for name, option in options.items():
            argument = arguments.get(renamed.get(name, name))
            if argument is None or name in shown or inspect.Parameter.empty in (argument.default, option.default):
                continue
            assert (option.default or None) == (argument.default or None), (command.callback.__name__, name)


def test_help_has_a_short_name_and_fits_80_columns(monkeypatch):
    from typer.testing import CliRunner

    monkeypatch.setenv("COLUMNS", "80")
    for args in ([], *([command.callback.__name__] for command in app.registered_commands)):
        shown = CliRunner().invoke(app, [*args, "-h"])
        assert shown.exit_code == 0
        assert "Usage" in shown.output
        assert all(len(line) <= 80 for line in shown.output.splitlines()), args


def test_a_target_has_a_short_name_wherever_there_is_one():
    from typer.main import get_command

    for name, command in get_command(app).commands.items():
        for option in command.params:
            if "--out" in option.opts:
                assert "-o" in option.opts, name


def test_the_shell_can_complete_commands():
    from typer.testing import CliRunner

    words = {"_TERCET_COMPLETE": "complete_bash", "COMP_WORDS": "tercet de", "COMP_CWORD": "1"}
    shown = CliRunner().invoke(app, [], env=words, prog_name="tercet")
    assert shown.output.split() == ["dedup"]


def test_threads_are_said_before_torch_is_imported(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    names = ("TERCET_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    for name in names:
        monkeypatch.setenv(name, "1")  # which is put back at the end
        monkeypatch.delenv(name)
    none = str(tmp_path / "none.txt")
    assert CliRunner().invoke(app, ["search", "words", "--in", none, "--threads", "0"]).exit_code == 2
    assert not set(names) & set(os.environ)
    CliRunner().invoke(app, ["search", "words", "--in", none, "--threads", "3"])
    assert [os.environ[name] for name in names] == ["3"] * 3
