"""YAML is read with limits, and before anything is built."""

import time

import pytest
import yaml

from tercet.storage.documents import parse_yaml

LAUGHS = "\n".join(["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))])


def test_yaml_is_what_the_safe_loader_makes_of_it():
    text = "a: &x {b: [1, 2.5, null, text]}\nc: *x\n"
    assert parse_yaml(text.encode()) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (LAUGHS.encode(), "holds more than 20,000 values"),
        (b"a: &a [*a]", "within what it stands for"),
        (b"[" * 5000 + b"]" * 5000, "more than 100 deep"),
        (b"- " * 5000 + b"a", "more than 100 deep"),
        (b"x" * 70_000, "more than 65,536 bytes"),
        (b"a: !!python/object/apply:os.getcwd []", "constructor"),
        (b"a: [", "expected"),
        (b"\xff", "utf-8|invalid"),
        (b"*x", "for nothing"),
    ],
)
def test_yaml_that_expands_or_never_ends_is_refused_at_once(content, problem):
    start_s = time.monotonic()
    with pytest.raises(ValueError, match=problem):
        parse_yaml(content)
    assert time.monotonic() - start_s < 2
