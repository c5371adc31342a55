"""The page that lists every table and figure of the papers: its commands are valid."""

import itertools
import re
import shlex
from pathlib import Path

import pytest

from tercet.training.pipeline import check_tasks
from tercet.training.recipe import read_recipe
from tercet.training.sweep import points_of

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "papers.md").read_text(encoding="utf-8")
COMMANDS = list(dict.fromkeys(re.findall(r"`(tercet train [^`]+)`", PAGE)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_training_in_the_page_has_settings_that_its_recipe_knows(command):
    words = shlex.split(command)
    given = {flag: [value for key, value in itertools.pairwise(words) if key == flag] for flag in ("--set", "--sweep")}
    assert "--run" in words
    for point in points_of(given["--sweep"]).values() if given["--sweep"] else [{}]:
        changes = [*given["--set"], *(f"{path}={value}" for path, value in point.items())]
        check_tasks(read_recipe(REPOSITORY / words[2], changes=changes))


@pytest.mark.parametrize(("heading", "tables", "figures"), [("Sentence-T5", 6, 5), ("GenSE", 9, 2), ("Parallel", 8, 4)])
def test_every_table_and_figure_is_there(heading, tables, figures):
    section = re.split(r"^## ", PAGE[PAGE.index(f"## {heading}") + 3 :], flags=re.M)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    for kind, last in (("Table", tables), ("Figure", figures)):
        named = set()
        for row in rows:
            for part in re.findall(rf"{kind}s? ((?:\d+)(?:(?:, | and | to )\d+)*)", row):
                numbers = [*map(int, re.findall(r"\d+", part))]
                named |= set(range(numbers[0], numbers[-1] + 1)) if " to " in part else set(numbers)
        assert named == set(range(1, last + 1))


@pytest.mark.parametrize("number", [4, 6, 7, 8])
def test_transfer_in_the_ablations_of_gense_is_the_mean_of_the_domain_tasks(number):
    section = PAGE[PAGE.index("## GenSE") : PAGE.index("## Parallel")]
    [row] = [line for line in section.splitlines() if line.startswith(f"| Table {number}: ")]
    words = shlex.split(re.findall(r"`(tercet train recipes/gense[^`]+)`", row)[0])
    changes = [value for key, value in itertools.pairwise(words) if key == "--set"]
    assert read_recipe(REPOSITORY / words[2], changes=changes).evaluate == ("STSB-dev", "domain")
