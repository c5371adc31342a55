"""Speed: sentences a second and memory, by length, batch and precision."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tercet.data.sets.folder import DataFolder
from tercet.evaluation.tasks.task import Embed, Options, Result, Task
from tercet.evaluation.timing import forget_peak, in_turns, peak_gpu_gb, peak_rss_gb, seconds_of, spread

_WORDS = "the time of year when a person can see light from day in water and think about house life".split()
_ROUNDS = 3
_OWN_BATCHES_WORDS = 2048


@dataclass(frozen=True)
class _Cell:
    """One combination that is measured."""

    words: int
    batch: int | None
    """How many sentences at once; None leaves it to the encoder."""
    precision: str

    def texts(self) -> list[str]:
        """Return enough sentences for the batch, or for the encoder to form batches as it likes."""
        at_least = _OWN_BATCHES_WORDS if self.batch is None else 256
        return sentences_of(self.words, max(self.batch or 1, at_least // self.words))


def sentences_of(num_words: int, num: int) -> list[str]:
    """Return different sentences of that many common words."""
    return [
        " ".join(_WORDS[(i + i // len(_WORDS) * j * j + j * (i % 7 + 1)) % len(_WORDS)] for j in range(num_words))
        for i in range(num)
    ]


def _speed(_data: DataFolder, embed: Embed, options: Options) -> Result:
    """Measure every combination of length, batch and precision, in turns, and return medians with their spread."""
    usual, first = embed.precisions[0], options.lengths[0]
    batches = (None, *options.batches)
    cells = [_Cell(words, batch, level) for words in options.lengths for batch in batches for level in embed.precisions]
    _, *rounds = in_turns({cell: _measure(embed, cell) for cell in cells}, num_rounds=1 + _ROUNDS)  # the first warms up
    grid: list[dict[str, Any]] = []
    for cell in cells:
        rate = spread([results[cell][0] for results in rounds])
        grid.append(
            {
                "words": cell.words,
                "batch": cell.batch,
                "precision": cell.precision,
                "sentences_per_s": rate["median"],
                "min": rate["min"],
                "max": rate["max"],
                "peak_rss_gb": max(results[cell][1] for results in rounds),
            }
            | ({"tokens": tokens} if (tokens := embed.num_tokens(cell.texts())) else {})
            | ({"peak_gpu_gb": max(results[cell][2] for results in rounds)} if embed.on_gpu else {})
        )
    main = next(c for c in grid if (c["words"], c["batch"], c["precision"]) == (first, None, usual))
    return {
        "metric": "sentences/s",
        "score": main["sentences_per_s"],
        "num": len(cells),
        "protocol": f"{_ROUNDS} interleaved rounds, medians; score: {first} words, own batches, {usual}; not x 100",
        "grid": grid,
        "peak_rss_gb": max(cell["peak_rss_gb"] for cell in grid),
        "num_parameters": embed.num_parameters,
    }


def _measure(embed: Embed, cell: _Cell) -> Callable[[], tuple[float, float, float]]:
    """Return what measures sentences a second, and the peaks of the process's memory and of the GPU's."""
    texts = cell.texts()

    def measure() -> tuple[float, float, float]:
        forget_peak()
        seconds = seconds_of(lambda: embed.compute(texts, precision=cell.precision, batch=cell.batch))
        return len(texts) / seconds, peak_rss_gb(), peak_gpu_gb() if embed.on_gpu else 0.0

    return measure


TASKS = [Task("speed", _speed, needs_data=False)]
