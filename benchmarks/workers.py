"""Contestants in processes and environments of their own.

A worker sleeps on a pipe while another one is measured, so that no two thread pools share the machine. Both sides use
the standard library alone: a rival's environment need not have Tercet.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

THREADS = 2


class WorkerError(Exception):
    """A contestant cannot take part; the message says why."""


class Worker:
    """A script that runs in another process and does what it is told.

    Args:
        python: The interpreter.
        script: A file that calls `serve`.
        arguments: What the script is called with.
        num_threads: How many threads it computes in.
    """

    def __init__(self, python: Path, script: Path, *arguments: str | Path, num_threads: int = THREADS) -> None:
        quiet = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [python, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | limited_to(num_threads) | quiet,
        )

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Have something done, and return the answer.

        Raises:
            WorkerError: It went wrong, or the process is gone.
        """
        assert self.process.stdin and self.process.stdout
        try:
            print(json.dumps([command, arguments]), file=self.process.stdin, flush=True)
            answer = json.loads(self.process.stdout.readline())
        except (BrokenPipeError, ValueError) as error:
            raise WorkerError(f"its process ended (exit code {self.process.wait()})") from error
        if "error" in answer:
            raise WorkerError(answer["error"])
        return dict(answer)

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait()


def limited_to(num_threads: int) -> dict[str, str]:
    """Return the environment in which libraries compute in so many threads."""
    return {name: str(num_threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")}


def serve(commands: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer commands from standard input until it ends; whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            answer = commands[command](**arguments)
        except Exception as error:  # whatever a rival raises is told to the benchmark, which goes on without it
            answer = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}
        print(json.dumps(answer), file=answers, flush=True)


def python_with(packages: tuple[str, ...], folder: Path) -> Path:
    """Return an interpreter that has packages: this one, or that of a virtual environment on top of this one.

    The environment is made where it is not there. It sees what is installed here and has only the packages in addition,
    so that torch is not installed a second time and nothing here is changed.

    Raises:
        WorkerError: The packages cannot be installed.
    """
    if all(find_spec(_import_name(package)) for package in packages):
        return Path(sys.executable)
    python = folder / "bin" / "python"
    if (folder / "installed").exists():
        return python
    print(f"installing {', '.join(packages)} into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
        own = sysconfig.get_path("purelib", vars={"base": str(folder)})
        Path(own, "installed-here.pth").write_text(sysconfig.get_path("purelib") + "\n")
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or str(error)).strip().splitlines()[-1]
        raise WorkerError(f"its packages cannot be installed: {last}") from error
    except OSError as error:
        raise WorkerError(f"its environment cannot be made: {error}") from error
    (folder / "installed").touch()
    return python


def _import_name(package: str) -> str:
    return package.partition(">")[0]
