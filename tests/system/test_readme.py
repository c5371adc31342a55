"""What README.md and the examples say is so: every command runs, every output is what is printed."""

import csv
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from in_thread import wait_until

import tercet

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
EXAMPLES = REPOSITORY / "examples"
BLOCKS = {language: re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) for language in ("sh", "text", "python")}
SHELL = next(block for block in BLOCKS["sh"] if "--column body" in block)


def run(line, *, folder):
    command = [sys.executable, "-m", *shlex.split(line, comments=True)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_same_print(printed, shown):
    """Compare words exactly, and numbers with a decimal point to what processors may differ in."""
    number = re.compile(r"-?\d+\.\d+")
    assert number.sub("", printed).split() == number.sub("", shown).split()
    pairs = zip(number.findall(printed), number.findall(shown), strict=True)
    assert all(float(one) == pytest.approx(float(other), abs=0.011) for one, other in pairs)


def test_the_first_command_finds_what_readme_shows(tmp_path):
    line = BLOCKS["sh"][0]
    assert line.startswith(
        "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt . && .venv/bin/tercet "
    )
    (tmp_path / "examples").mkdir()
    shutil.copy(EXAMPLES / "bicycle-shop.txt", tmp_path / "examples")
    found = run(line.rpartition("&& .venv/bin/")[2], folder=tmp_path)
    assert_same_print(found, BLOCKS["text"][0])
    assert_same_print(found, (EXAMPLES / "output" / "search.txt").read_text(encoding="utf-8"))


def test_the_second_command_is_a_script():
    assert os.access(REPOSITORY / BLOCKS["sh"][1].strip(), os.X_OK)


def test_what_pip_installs_is_this_package():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert BLOCKS["sh"][2].strip() == f"pip install {project['name']}"


def test_the_lines_for_the_shell_run(tmp_path):
    texts = (EXAMPLES / "town.txt").read_text(encoding="utf-8").splitlines()[:60]
    with (tmp_path / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "body"], *enumerate(texts)])
    *lines, serve = SHELL.strip().splitlines()
    assert len(lines) == 4
    assert serve.startswith("tercet serve")
    for line in lines:
        run(line, folder=tmp_path)
        assert all((tmp_path / out).exists() for out in re.findall(r"--(?:out|map) (\S+)", line))


def test_the_last_line_for_the_shell_serves(tmp_path):
    pytest.importorskip("uvicorn")
    *_, line = SHELL.strip().splitlines()
    command = shlex.split(line, comments=True)
    assert command[:2] == ["tercet", "serve"]
    (tmp_path / "adapted").mkdir()
    tercet.Encoder.load("mini").save(tmp_path / "adapted" / "encoder")
    arguments = [sys.executable, "-m", *command, "--port", "0", "--no-access-log"]
    with subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://\S+:\d+", next(line for line in server.stderr if "http://" in line))[0]
            wait_until(lambda: httpx.get(f"{address}/ready", timeout=30).status_code == 200, seconds=60)
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


def test_the_python_code_runs():
    assert BLOCKS["python"]
    for block in BLOCKS["python"]:
        names = {}
        exec(block, names)
        assert names["vectors"].shape == (2, 384)
        assert "squeals" in names["best"].text


def test_readme_has_about_900_words_and_no_link_without_a_file():
    assert 600 < len(re.sub(r"<!-- figure.*?-->|[|-]{3,}", "", README).split()) < 1_100
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", README) + re.findall(r'src(?:set)?="([^"]+)"', README)
    assert links
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_on_the_package_index_every_link_of_readme_is_absolute():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    text = README
    for rule in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    targets = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'src(?:set)?="([^"]+)"', text)
    assert [target for target in targets if not target.startswith("https://")] == []


@pytest.mark.parametrize("name", ["search_notes", "cluster_and_name"])
def test_an_example_prints_what_the_documentation_shows(name):
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_same_print(done.stdout, (EXAMPLES / "output" / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["adapt_and_prove", "train_st5", "serve_and_call"])
def test_an_example_runs(name, tmp_path):
    pytest.importorskip("uvicorn")
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed, shown = done.stdout, (EXAMPLES / "output" / f"{name}.txt").read_text(encoding="utf-8")
    without_numbers = re.compile(r"[-+]?\d+\.\d+|\S*/\S+")
    assert without_numbers.sub("", printed).splitlines()[-1] == without_numbers.sub("", shown).splitlines()[-1]


def test_pages_have_the_numbers_that_were_measured():
    done = subprocess.run(
        [sys.executable, "benchmarks/figures.py", "--check"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
