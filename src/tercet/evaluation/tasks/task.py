"""What a task is: a name and a function that scores an embedding function on the data folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tercet.data.sets.folder import DataFolder
from tercet.encoder.model.arrays import Vectors

Result = dict[str, Any]
"""`metric`, `score` (x 100), `num`, `protocol`, and whatever else a task has to say."""


class Embed(Protocol):
    """Texts to vectors."""

    precisions: tuple[str, ...]
    """What `compute` can be asked for, the usual one first."""

    num_parameters: int | None
    """The model's size, where it is known."""

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


@dataclass(frozen=True)
class Task:
    """A task by its name."""

    name: str
    run: Callable[[DataFolder, Embed, Options], Result]
    needs_data: bool = True
    """Whether it reads anything from the folder with the evaluation data."""
