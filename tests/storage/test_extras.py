"""Packages of extras: there, or one wording."""

import re
from pathlib import Path

import pytest

import tercet
from tercet import ModelError, SettingError
from tercet.storage.extras import require


def test_a_module_that_is_installed_is_imported():
    assert require("json", "none").loads("1") == 1


def test_a_module_that_is_not_installed_is_an_error_with_what_to_run():
    with pytest.raises(SettingError) as caught:
        require("no_such_module.at_all", "some")
    assert str(caught.value) == "no_such_module.at_all: is not installed. Run: pip install 'tercet[some]'"
    with pytest.raises(ModelError, match=r"^nothing: is not installed, and a\.model needs it\. Run: pip install"):
        require("nothing", "some", needed_by=Path("a.model"), raised=ModelError)


def test_every_extra_that_is_named_is_one_that_can_be_installed():
    source = "".join(path.read_text(encoding="utf-8") for path in Path(tercet.__file__).parent.rglob("*.py"))
    named = {*re.findall(r'require\("[\w.]+", "(\w+)"', source), *re.findall(r"tercet\[(\w+)\]", source)}
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert named >= {"report", "synthesis", "hub"}
    assert [name for name in sorted(named) if f"\n{name} = [" not in declared] == []
