"""The documentation site and the front pages: every link leads somewhere, every number comes from a file."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_is_built_and_no_link_in_it_is_broken(site):
    assert (site / "index.html").is_file()


def test_the_site_fetches_nothing_from_elsewhere(site):
    loads = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?(https?:)|<link\b[^>]*rel=\"?stylesheet\"?[^>]*https?:")
    assert [page.name for page in site.rglob("*.html") if loads.search(page.read_text(encoding="utf-8"))] == []


def test_the_reference_has_every_command_and_every_stage(site):
    from tercet.training.stages.kinds import KINDS

    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    for name in ("embed", "adapt", "train", "data fetch", "runs prune"):
        assert f">tercet {name}<" in commands
    settings = (site / "reference" / "settings.html").read_text(encoding="utf-8")
    assert all(f">The stage {kind}<" in settings for kind in KINDS)
    assert "learn_temperature" in settings


def test_the_reference_has_every_public_function(site):
    import tercet

    page = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert [name for name in tercet.__all__ if f'.{name}"' not in page] == []


def test_the_page_about_installing_names_every_extra():
    page = (REPOSITORY / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    assert [name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in page] == []


def test_the_version_is_in_one_place_and_the_citation_has_it():
    import tercet

    assert "version" in PROJECT["dynamic"]
    assert f"\nversion: {tercet.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    notes = subprocess.run([REPOSITORY / "scripts" / "notes", tercet.__version__], capture_output=True, text=True)
    assert notes.returncode == 0, notes.stderr
    assert "### Added" in notes.stdout


def test_figures_name_their_command_machine_and_date():
    files = list((REPOSITORY / "docs" / "figures").glob("*.json"))
    assert files
    for file in files:
        assert {"command", "machine", "date"} <= json.loads(file.read_text(encoding="utf-8")).keys(), file.name
