"""`import tercet` and `tercet --help` are instant: none of the heavy libraries is imported for them."""

import json
import re

import pytest

HEAVY = [
    "torch",
    "transformers",
    "sentence_transformers",
    "datasets",
    "pyarrow",
    "onnxruntime",
    "openvino",
    "accelerate",
    "peft",
]

LOADED = "import json, sys; print(json.dumps([name for name in {heavy} if name in sys.modules]), file=sys.stderr)"


def heavy_modules(python, folder, code):
    done = python("-c", f"{code}\n{LOADED.format(heavy=HEAVY)}", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1]), done.stdout


def test_importing_tercet_imports_nothing_heavy(python, tmp_path):
    loaded, _ = heavy_modules(python, tmp_path, "import tercet; tercet.TercetError; tercet.__version__")
    assert loaded == []


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        *([command, "--help"] for command in ("embed", "search", "export", "train", "synthesize", "adapt", "serve")),
    ],
)
def test_help_imports_nothing_heavy(python, tmp_path, args):
    code = f"""
import sys
from tercet.cli import main
sys.argv = ["tercet", *{args}]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    loaded, out = heavy_modules(python, tmp_path, code)
    assert loaded == []
    assert "Usage" in out
    assert re.search(r"--model|--run|embed", out)


def test_filtering_again_imports_nothing_heavy(python, tmp_path):
    assert heavy_modules(python, tmp_path, "import tercet.cli, tercet.synthesis.corpus")[0] == []


def test_tasks_that_only_compare_vectors_import_nothing_heavy(python, tmp_path):
    names = ("task", "sts", "pairs", "triplets", "geometry", "translation", "domain", "speed")
    code = "import " + ", ".join(f"tercet.evaluation.tasks.{name}" for name in names)
    assert heavy_modules(python, tmp_path, code)[0] == []


def test_a_heavy_import_would_be_noticed(python, tmp_path):
    loaded, _ = heavy_modules(python, tmp_path, "import tercet; import pyarrow")
    assert loaded == ["pyarrow"]
