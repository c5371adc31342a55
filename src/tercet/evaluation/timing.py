"""Measuring: contestants in turns, medians with their spread, and the peak of memory."""

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Spread(TypedDict):
    """What several rounds measured."""

    median: float
    min: float
    max: float
    rounds: int


def in_turns(contestants: Mapping[K, Callable[[], V]], *, num_rounds: int) -> Iterator[dict[K, V]]:
    """Call every contestant once a round, and yield what each round's calls returned.

    Every other round goes backwards, so that a machine that slowly changes its speed favours nobody.
    """
    names = list(contestants)
    for number in range(num_rounds):
        results = {name: contestants[name]() for name in (names if number % 2 == 0 else names[::-1])}
        yield {name: results[name] for name in names}


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def spread(values: Sequence[float]) -> Spread:
    """Return the median of the rounds, and how far they lie apart."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": len(values)}


def ratio(over: Sequence[float], under: Sequence[float]) -> Spread:
    """Return the spread of the ratios of each round."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def forget_peak(process: int | None = None) -> None:
    """Let the system count a process's peak of memory anew; where it cannot, the peak is of all its life so far."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process or 'self'}/clear_refs").write_text("5")
    torch = sys.modules.get("torch")
    if process is None and torch is not None and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def peak_gpu_gb() -> float:
    """Return the most memory that this process's tensors held on its GPU."""
    import torch

    return torch.cuda.max_memory_allocated() / 1e9


def peak_rss_gb(process: int | None = None) -> float:
    """Return the most memory that a process held: this one or, on Linux only, another. NaN where nobody counts it."""
    status = Path(f"/proc/{process or 'self'}/status")
    if process or status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e9
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
