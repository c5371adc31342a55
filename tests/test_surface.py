"""The public surface: what `import tercet` offers."""

import inspect
import pydoc

import pytest

import tercet

VERBS = [
    "adapt",
    "check",
    "cluster",
    "compare",
    "dedup",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "fetch",
    "label",
    "leaks",
    "mine",
    "models",
    "prune",
    "push",
    "recipes",
    "refilter",
    "report",
    "search",
    "serve",
    "synthesize",
    "tasks",
    "train",
    "verify",
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
    "TextTypeError",
]


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


def test_an_evaluation_can_be_read_and_taken_apart(tiny, tmp_path):
    rows = ["sentence1\tsentence2\tscore", "a b\ta b\t5", "a b\tc d\t1", "a b\ta d\t3"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    task = f"scored:{tmp_path / 'pairs.tsv'}"
    found = tercet.evaluate(tiny("t5"), tasks=task, out=tmp_path / "out", name="tiny")
    assert repr(found).startswith("Evaluation of tiny\n  scored:")
    assert found["tasks"][task] == found.tasks[task] == found.to_dict()["tasks"][task]
