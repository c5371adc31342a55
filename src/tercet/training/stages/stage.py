"""What a stage is: settings, and work that turns inputs into one output in the stage's folder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tercet.data.rows.columns import RowKind
from tercet.distributed.settings import ClusterSettings
from tercet.encoder.encoder import Encoder
from tercet.encoder.folder.names import FRESH, find_folder, sha256_of_model
from tercet.evaluation.tasks.task import Task
from tercet.storage.settings import Settings
from tercet.training.loop.loop import Evaluate, Measure
from tercet.training.loop.processes import Processes
from tercet.training.stages.scores import TrajectorySettings
from tercet.vectors.remembered import Keys, RememberedVectors

REFERENCE = "@"


class StageSettings(Settings):
    """The settings of a kind of stage."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses; `@NAME` is the output of an earlier stage."""
        return []


@dataclass(frozen=True)
class Output:
    """What an earlier stage made."""

    path: Path
    key: str
    """The hash of everything that decided it."""


Asked = tuple[str, str | None, bool, bool]
"""A model as `find_folder` is asked for it: its name, revision, whether weights are wanted, and pickles."""


@dataclass(frozen=True)
class Context:
    """What a stage gets from the run that it is part of."""

    name: str
    folder: Path
    seed: int
    outputs: Mapping[str, Output]
    processes: Processes
    score: Callable[[Encoder, Encoder | None, Task | str, str], Evaluate]
    """Makes the function that scores an encoder on a dev task, at a precision. The second encoder, where there is one,
    embeds the source side of parallel pairs."""
    measure: Callable[[Encoder, Encoder | None, TrajectorySettings, str], Measure]
    """Makes the function that measures alignment and uniformity on dev pairs, with the same arguments."""
    on_log: Callable[[dict[str, Any]], None] | None = None
    cluster: ClusterSettings | None = None
    """Whose workers embed and write; this process where None."""
    progress: bool = False
    asked: list[Asked] = field(default_factory=list)
    """Models outside of the run that were described for the stage."""

    @property
    def teachers(self) -> Path:
        """Where the run keeps vectors that stages share."""
        return self.folder.parent.with_name("teachers")

    def remember(self, store: RememberedVectors, texts: Callable[[], Iterable[str]], *, label: str) -> Keys:
        """Add texts to a store that all processes use: the main one embeds what is new, the others find it there."""
        if not self.processes.is_main:
            self.processes.wait()
        shown = self.progress and self.processes.is_main
        keys = store.add(texts, label=label, cluster=self.cluster, progress=shown)
        if self.processes.is_main:
            self.processes.wait()
        return keys

    def place(self, name: str) -> str:
        """Return where a model or file is: `@NAME` is the output of an earlier stage, all else stands for itself."""
        return str(self.outputs[name.removeprefix(REFERENCE)].path) if name.startswith(REFERENCE) else name

    def describe_model(
        self, name: str, *, revision: str | None = None, weights: bool = True, pickles: bool = False
    ) -> dict[str, str]:
        """Return what decides a model: the stage that makes it, its shape, or its files. See `find_folder`."""
        if name.startswith(REFERENCE):
            return {"stage": self.outputs[name.removeprefix(REFERENCE)].key}
        if name.startswith(FRESH):
            return {"shape": name.removeprefix(FRESH)}
        self.asked.append((name, revision, weights, pickles))
        folder = find_folder(name, revision=revision, weights=weights, pickles=pickles)
        return {"sha256": sha256_of_model(folder, weights=weights, pickles=pickles)}


class Work(Protocol):
    """One stage of one run, ready to go."""

    inputs: dict[str, Any]
    """Everything outside of the settings that decides the output, as JSON."""

    def run(self) -> dict[str, Any]:
        """Make the output, going on where an earlier run was killed, and return what is worth noting."""


@dataclass(frozen=True)
class Kind:
    """One kind of stage."""

    settings: type[StageSettings]
    work: Callable[[Any, Context], Work]
    output: str
    """What the output is called in the stage's folder."""
    rows: RowKind = "triplets"
    """As what it reads its rows."""
