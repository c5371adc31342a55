"""What a task is: a name and a function that scores an embedding function on the data folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tercet.data.sets.folder import DataFolder
from tercet.encoder.model.arrays import Vectors

Result = dict[str, Any]
"""`metric`, `score` (x 100), `num`, `protocol`, and what else a task has to say; `items` where they are asked for."""


class Embed(Protocol):
    """Texts to vectors."""

    precisions: tuple[str, ...]
    """What `compute` can be asked for, the usual one first."""

    num_parameters: int | None
    """The model's size, where it is known."""

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a GPU."""

    def num_tokens(self, texts: Sequence[str]) -> float | None:
        """Return how many tokens are read of a text on average, where it is known."""

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, in their order. Texts that were seen before cost nothing."""

    def compute(self, texts: Sequence[str], *, precision: str, batch: int | None) -> None:
        """Embed texts, about so many at once (its own choice where None), and keep nothing: for measuring time."""


@dataclass(frozen=True)
class Options:
    """Settings that can change a score."""

    classifier: str = "batched"
    """`batched` (all folds as one problem, as SentEval trains) or `sklearn` (LogisticRegression)."""

    seed: int = 1111
    """What folds and batches are drawn with."""

    source: Embed | None = None
    """What embeds the source side of parallel pairs, where it is another encoder."""

    items: bool = False
    """Whether results of STS tasks and your own files have `items`: what the score was computed from, for intervals."""

    lengths: tuple[int, ...] = (8, 32, 128)
    """Of the task `speed`: how many words sentences have."""

    batches: tuple[int, ...] = (1, 8, 32)
    """Of the task `speed`: how many sentences are embedded at once, besides as many as the encoder likes."""


@dataclass(frozen=True)
class Task:
    """A task by its name."""

    name: str
    run: Callable[[DataFolder, Embed, Options], Result]
    needs_data: bool = True
    """Whether it reads anything from the folder with the evaluation data."""


def mean_of(tasks: Sequence[Task]) -> Task:
    """Return the task whose score is the mean of those of some tasks, which are in `scores`."""

    def run(data: DataFolder, embed: Embed, options: Options) -> Result:
        scores = {task.name: task.run(data, embed, options)["score"] for task in tasks}
        mean = sum(scores.values()) / len(scores)
        return {"metric": "mean", "score": mean, "num": len(scores), "protocol": "mean of scores", "scores": scores}

    return Task(",".join(task.name for task in tasks), run, needs_data=any(task.needs_data for task in tasks))
