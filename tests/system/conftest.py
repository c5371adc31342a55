"""The command line as a user runs it, on tiny models that are saved once."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

PRELOADED = Path(__file__).with_name("preloaded.py")


def pytest_collection_modifyitems(items):
    """Mark everything here as slow: it starts processes, serves, or trains."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def models(tiny, tmp_path_factory):
    """Return the folders of saved models by a short name."""
    folder = tmp_path_factory.mktemp("models")
    made = {
        "t5": tiny("t5"),
        "projected": tiny("t5", projection=16),
        "question": tiny("t5", readout="encdec-first", prompt="gense"),
        "bert": tiny("bert", readout="mean"),
    }
    for name, encoder in made.items():
        encoder.save(folder / name)
    return {name: folder / name for name in made}


@pytest.fixture(scope="session")
def encoder(models):
    """Return the saved T5 encoder as it is in Python: what the commands are compared with."""
    from tercet import Encoder

    return Encoder.load(models["t5"], device="cpu")


@contextmanager
def preloaded(model, scratch, environment):
    """Yield a function that starts `tercet ARGS` in a copy of one process with this environment.

    It is a context: it yields the process id, and an object that has exit code and output when the context ends.
    """
    numbers = count()
    with subprocess.Popen(
        [sys.executable, PRELOADED, model], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"

        @contextmanager
        def start(*args, folder, stdin=b"", max_file_bytes=None):
            number = next(numbers)
            files = {name: scratch / f"{number}.{name}" for name in ("stdin", "stdout", "stderr")}
            for name, file in files.items():
                file.write_bytes(stdin if name == "stdin" else b"")
            request = {"args": [*map(str, args)], "folder": str(folder), "max_file_bytes": max_file_bytes}
            request |= {name: str(file) for name, file in files.items()}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            done = subprocess.CompletedProcess(request["args"], None)
            try:
                yield int(process.stdout.readline()), done
            finally:
                done.returncode = int(process.stdout.readline())
                done.stdout, done.stderr = (files[name].read_text("utf-8") for name in ("stdout", "stderr"))

        yield start
        process.stdin.close()


def environment(*, remove=(), **more):
    """Return this process's environment with changes; tiny models have no use for threads."""
    changed = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    return {name: value for name, value in changed.items() if name not in remove}


@pytest.fixture(scope="session")
def preload(models, tmp_path_factory):
    """Return a function that starts a process with the libraries imported, in an environment with these changes."""

    def start(**changes):
        return preloaded(models["t5"], tmp_path_factory.mktemp("commands"), environment(**changes))

    return start


@pytest.fixture(scope="session")
def launch(preload):
    """Return the function that starts `tercet ARGS`; see `preloaded`."""
    with preload() as start:
        yield start


@pytest.fixture
def tercet(launch, tmp_path):
    """Return a function that runs `tercet ARGS` in the test's folder and returns its exit code and output."""

    def run(*args, folder=tmp_path, **more):
        with launch(*args, folder=folder, **more) as (_, done):
            pass
        return done

    return run


@pytest.fixture(scope="session")
def python():
    """Return a function that runs `python ARGS` from the start: slower than `tercet`, and nothing is shared."""

    def run(*args, folder, changes=None, **more):
        return subprocess.run(
            [sys.executable, *map(str, args)],
            cwd=folder,
            env=environment(**(changes or {})),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **more,
        )

    return run
