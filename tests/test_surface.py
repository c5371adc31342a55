"""The public surface: what `import tercet` offers, and a command line that only parses and calls it."""

import ast
import inspect
import pydoc
from pathlib import Path

import numpy as np
import pytest

import tercet
from tercet import SettingError
from tercet.cli import app, data_app
from tercet.storage.assignments import parse_assignments

VERBS = [
    "adapt",
    "compare",
    "embed",
    "evaluate",
    "export",
    "fetch",
    "leaks",
    "refilter",
    "report",
    "search",
    "synthesize",
    "train",
]
ERRORS = [
    "DivergedError",
    "InputError",
    "ModelError",
    "NonFiniteError",
    "OutputError",
    "RowError",
    "SettingError",
    "TercetError",
    "TextError",
]
CLI = Path(tercet.__file__).with_name("cli")


def test_the_public_names_are_these_and_all_of_them_resolve():
    assert sorted(tercet.__all__) == sorted([*VERBS, *ERRORS, "Encoder", "Synthesizer"])
    for name in tercet.__all__:
        assert getattr(tercet, name) is not None
    assert set(tercet.__all__) <= set(dir(tercet))
    with pytest.raises(AttributeError, match="nothing"):
        _ = tercet.nothing


def test_help_shows_every_verb_with_its_options():
    text = pydoc.plain(pydoc.render_doc(tercet))
    for verb in VERBS:
        assert f"{verb}(" in text
    assert "precision: str = 'exact'" in text


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_shows_its_options_and_explains_all_of_them(verb):
    function = getattr(tercet, verb)
    parameters = inspect.signature(function).parameters
    assert not [p for p in parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    assert not [name for name in parameters if f"{name}:" not in (function.__doc__ or "")]


def test_every_error_is_a_tercet_error():
    for name in ERRORS:
        assert issubclass(getattr(tercet, name), tercet.TercetError)


def test_every_command_is_a_verb():
    commands = [command.callback.__name__ for typer in (app, data_app) for command in typer.registered_commands]
    assert sorted(commands) == VERBS


@pytest.mark.parametrize("file", sorted(CLI.glob("*.py")), ids=lambda file: file.stem)
def test_the_command_line_does_nothing_but_parse_and_call_verbs(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    guarded = {inner for node in ast.walk(tree) if isinstance(node, ast.If) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in guarded and (node.module or "").startswith("tercet"):
            allowed = ("tercet", "tercet.errors", "tercet.cli", "tercet.cli.options")
            assert node.module in (*allowed, "tercet.storage.choices", "tercet.storage.assignments"), node.module
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tercet":
            assert node.attr in VERBS


def test_texts_in_memory_are_embedded_and_searched(tiny, tmp_path):
    encoder, texts = tiny("t5"), ["A man plays a guitar.", "Stocks dropped.", "A man plays a guitar."]
    vectors = tercet.embed(texts, model=encoder)
    np.testing.assert_array_equal(vectors, encoder.embed(texts))
    stats = tercet.embed(texts, model=encoder, out=tmp_path / "vectors.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), vectors)
    assert stats.num_texts == 3
    hits = tercet.search("Stocks dropped.", texts, model=encoder, k=1)
    assert (hits[0].row, hits[0].text) == (2, "Stocks dropped.")
    assert not (tmp_path / ".tercet-cache").exists()


def test_a_text_in_memory_that_is_none_is_named_by_its_position(tiny, tmp_path):
    for out in (None, tmp_path / "vectors.npy"):
        with pytest.raises(tercet.TextError, match="text 1: is of type int"):
            tercet.embed(["one", 2], model=tiny("t5"), out=out)


def test_a_file_gives_the_vectors_of_its_texts(tiny, tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    np.testing.assert_array_equal(
        tercet.embed(tmp_path / "in.txt", model=tiny("t5")), tercet.embed(["one", "two"], model=tiny("t5"))
    )


def test_an_evaluation_can_be_read_and_taken_apart(tiny, tmp_path):
    rows = ["sentence1\tsentence2\tscore", "a b\ta b\t5", "a b\tc d\t1", "a b\ta d\t3"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    task = f"scored:{tmp_path / 'pairs.tsv'}"
    found = tercet.evaluate(tiny("t5"), tasks=task, out=tmp_path / "out", name="tiny")
    assert repr(found).startswith("Evaluation of tiny\n  scored:")
    assert found["tasks"][task] == found.tasks[task] == found.to_dict()["tasks"][task]


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
