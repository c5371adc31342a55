"""The public surface: what `import tercet` offers, and the settings that a command line takes."""

import pytest

import tercet
from tercet import SettingError
from tercet.cli import parse_settings


def test_the_public_names_are_these_and_all_of_them_resolve():
    assert tercet.__all__ == sorted(tercet.__all__)
    for name in tercet.__all__:
        assert getattr(tercet, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = tercet.nothing


def test_every_error_is_a_tercet_error():
    for name in tercet.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(tercet, name), tercet.TercetError)


def test_settings_are_what_they_look_like():
    pairs = ["projection=null", "normalize=false", "max_tokens=64", "readout=enc-mean"]
    assert parse_settings(pairs) == {"projection": None, "normalize": False, "max_tokens": 64, "readout": "enc-mean"}


@pytest.mark.parametrize("prompt", ["[X] Question: what?", "query: [X]", "passage [X] # tag", " 12 [X] "])
def test_a_prompt_is_text_even_where_it_looks_like_yaml(prompt):
    assert parse_settings([f"prompt={prompt}"]) == {"prompt": prompt}


def test_a_setting_without_a_value_is_refused():
    with pytest.raises(SettingError, match="--set readout=VALUE"):
        parse_settings(["readout"])
