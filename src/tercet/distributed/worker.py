"""What runs on the machines of a cluster: one process that does one piece of work at a time."""

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

from tercet.errors import OutputError, TercetError

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""Variables that tell torch and the tokenizers how many threads to use."""


class Work(Protocol):
    """What a worker can do: shipped to it once, with all that it needs."""

    def __call__(self, task: Any, /) -> Any:
        """Do a task; doing it twice must leave what doing it once leaves."""

    def try_rows(self, task: Any, first: int, last: int, /) -> None:
        """Compute some rows of a task and keep nothing: is it these that end a worker?"""


@dataclass(frozen=True)
class Answer:
    """What a worker says of a piece of work."""

    result: Any = None
    error: Exception | None = None
    """What went wrong: an error of ours as it is, any other as a text in a RuntimeError."""

    seconds: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether another try anywhere would end in the same way."""
        return isinstance(self.error, TercetError) and not isinstance(self.error, OutputError)


@dataclass(frozen=True)
class Place:
    """Where a worker is, and what is installed there."""

    node: str
    host: str
    pid: int
    versions: dict[str, str]


class Worker:
    """A process of a cluster. Nothing it is asked raises: what Ray raises is always that the process is gone.

    Args:
        num_threads: How many threads it computes with.
        cores: The cores it may use; any where None.
    """

    def __init__(self, num_threads: int, cores: Sequence[int] | None) -> None:
        if cores is not None:
            os.sched_setaffinity(0, cores)
        os.environ |= dict.fromkeys(_THREADS, str(num_threads))  # before torch is imported, with what is shared
        self._work: Work | None = None

    def place(self) -> Place:
        """Return where this is."""
        import ray

        return Place(ray.get_runtime_context().get_node_id(), platform.node(), os.getpid(), versions())

    def start(self, make: Callable[[Any], Work], shared: Any) -> Answer:
        """Get ready to work, and say what the CPU can do."""

        def begin() -> str:
            self._work = make(shared)
            return capability()

        return _answer(begin)

    def do(self, task: Any) -> Answer:
        """Do a task."""
        return _answer(lambda: self._ready()(task))

    def try_rows(self, task: Any, first: int, last: int) -> Answer:
        """Compute some rows of a task."""
        return _answer(lambda: self._ready().try_rows(task, first, last))

    def _ready(self) -> Work:
        if self._work is None:
            raise RuntimeError("was not started")
        return self._work


def versions() -> dict[str, str]:
    """Return the versions that decide what is computed here."""
    return {name: version(name) for name in ("tercet", "torch", "numpy", "pyarrow", "tokenizers")}


def capability() -> str:
    """Return what the CPU can do, as torch sees it; nothing where torch is not in use."""
    torch: Any = sys.modules.get("torch")
    return "" if torch is None else str(torch.backends.cpu.get_cpu_capability())


def _answer(call: Callable[[], Any]) -> Answer:
    start_s = time.monotonic()
    try:
        return Answer(call(), seconds=time.monotonic() - start_s)
    except TercetError as error:
        return Answer(error=error, seconds=time.monotonic() - start_s)
    except Exception as error:
        return Answer(error=RuntimeError(f"{type(error).__name__}: {error}"), seconds=time.monotonic() - start_s)
