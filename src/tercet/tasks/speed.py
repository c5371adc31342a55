"""Speed: sentences a second and memory, by length, batch and precision."""

import contextlib
import resource
import statistics
import sys
import time
from pathlib import Path

from tercet.tasks.data import DataFolder
from tercet.tasks.task import Embed, Options, Result, Task

_WORDS = "the time of year when a person can see light from day in water and think about house life".split()
_NUM_WORDS = (8, 32, 128)
_BATCHES = (1, 8, 32)
_ROUNDS = 3


def sentences_of(num_words: int, num: int) -> list[str]:
    """Return different sentences of that many common words."""
    return [" ".join(_WORDS[(i + j * (i % 7 + 1)) % len(_WORDS)] for j in range(num_words)) for i in range(num)]


def _speed(_data: DataFolder, embed: Embed, _options: Options) -> Result:
    """Measure every combination of length, batch and precision, interleaved, and return medians with their spread."""
    usual = embed.precisions[0]
    cells = [(words, batch, precision) for words in _NUM_WORDS for batch in _BATCHES for precision in embed.precisions]
    rates: dict[tuple[int, int, str], list[float]] = {cell: [] for cell in cells}
    memory: dict[tuple[int, int, str], float] = {}
    for round_number in range(_ROUNDS + 1):
        for words, batch, precision in cells:
            texts = sentences_of(words, max(batch, 256 // words))
            _forget_peak()
            start = time.perf_counter()
            embed.compute(texts, precision=precision, batch=batch)
            memory[words, batch, precision] = _peak_rss_gb()
            if round_number:  # the first round only warms up
                rates[words, batch, precision].append(len(texts) / (time.perf_counter() - start))
    grid = [
        {
            "words": words,
            "batch": batch,
            "precision": precision,
            "sentences_per_s": statistics.median(rates[words, batch, precision]),
            "min": min(rates[words, batch, precision]),
            "max": max(rates[words, batch, precision]),
            "peak_rss_gb": memory[words, batch, precision],
        }
        for words, batch, precision in cells
    ]
    main = next(c for c in grid if (c["words"], c["batch"], c["precision"]) == (8, 32, usual))
    return {
        "metric": "sentences/s",
        "score": main["sentences_per_s"],
        "num": len(cells),
        "protocol": f"{_ROUNDS} interleaved rounds, medians; score: 8 words, batch 32, {usual}; not x 100",
        "grid": grid,
        "peak_rss_gb": max(memory.values()),
        "num_parameters": embed.num_parameters,
    }


def _forget_peak() -> None:
    """Let the system count the peak of memory anew, where it can; elsewhere the peak is of the whole process so far."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_rss_gb() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


TASKS = [Task("speed", _speed)]
