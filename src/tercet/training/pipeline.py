"""The pipeline: runs a recipe's stages in a folder. What is done is skipped, what was killed goes on."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tercet.data.sets.groups import DEV_SETS
from tercet.distributed.settings import LOCAL, ClusterSettings, Engine, cluster_of
from tercet.encoder.encoder import Encoder
from tercet.errors import SettingError
from tercet.evaluation.evaluate import RESULTS, Evaluation, evaluate
from tercet.evaluation.tasks.own import PARALLEL, trajectory_task
from tercet.evaluation.tasks.table import choose_tasks, data_for
from tercet.evaluation.tasks.task import Options, Result, Task, mean_of
from tercet.storage.files import atomic_write, write_json
from tercet.storage.hashing import sha256_of_json
from tercet.storage.machine import machine, versions
from tercet.training.card import write_card
from tercet.training.loop.loop import Evaluate, Measure
from tercet.training.loop.processes import Processes
from tercet.training.objectives.compute import USUAL_ACTIVATION_GB
from tercet.training.recipe import Recipe, Stage
from tercet.training.replacing import NO_CHANGE, check_replaced, would_be_lost
from tercet.training.runs import (
    DESCRIPTION,
    ENCODER,
    RECIPE,
    copy_folder,
    join_logs,
    locked,
    log_to,
    read_record,
    record_run,
)
from tercet.training.stage_folders import CLOCK, StageFolder, trusted_record
from tercet.training.stages.kinds import KINDS
from tercet.training.stages.scores import DevSettings, TrajectorySettings
from tercet.training.stages.sharded import ShardedEncoder
from tercet.training.stages.stage import Asked, Context, Output
from tercet.training.stages.trained import LearningSettings
from tercet.training.unchanged import look
from tercet.vectors.store import VectorStore

logger = logging.getLogger("tercet")


@dataclass(frozen=True)
class StageResult:
    """What happened to a stage."""

    name: str
    folder: Path
    output: Output
    skipped: bool
    """Whether an earlier run had done it."""
    notes: dict[str, Any]
    """What the stage thought worth noting: its steps, its best score."""
    time_s: float
    """How long it took, all attempts with the same settings and inputs together; a killed one is not counted."""


@dataclass(frozen=True, repr=False)
class RunResult:
    """What a run came to."""

    stages: tuple[StageResult, ...]
    encoder: Path | None
    """The last encoder."""
    results: Evaluation | None
    """The scores of the last encoder, where the recipe evaluates."""
    recipe: Recipe
    """The recipe with every setting."""
    folder: Path
    is_main: bool = True
    """Whether this process is the one that writes and speaks."""

    def to_dict(self) -> dict[str, Any]:
        """Return the stages with their notes, the scores, and where everything is."""
        return {
            "folder": str(self.folder),
            "encoder": None if self.encoder is None else str(self.encoder),
            "stages": {stage.name: {"skipped": stage.skipped, **stage.notes} for stage in self.stages},
            "results": None if self.results is None else self.results.to_dict(),
        }

    def __repr__(self) -> str:
        lines = [f"{stage.name}: {'done before' if stage.skipped else 'done'}" for stage in self.stages]
        lines += [] if self.encoder is None else [f"encoder: {self.encoder}"]
        lines += [] if self.results is None else [repr(self.results)]
        return "\n  ".join([f"Run of {self.recipe.name}", *lines])


def run_recipe(
    recipe: Recipe,
    run: str | Path,
    *,
    data: str | Path | None = None,
    force: bool = False,
    loggers: Sequence[str] = (),
    engine: Engine = LOCAL,
    progress: bool = False,
) -> RunResult:
    """Run a recipe's stages, and score the last encoder where the recipe says so.

    Args:
        recipe: What to do.
        run: The folder for everything. Killed and called again, a run goes on; stages whose settings and inputs have
            not changed are skipped.
        data: The folder with the evaluation data; `$TERCET_DATA/eval` where None.
        force: Whether the encoder and the results of a finished run of other settings are replaced.
        loggers: Where else the log goes: `tensorboard`, `wandb`, `mlflow`.
        engine: Who embeds and writes for stages that do so; see `train`.
        progress: Whether bars are shown.

    Raises:
        TercetError: Something about the recipe, its inputs or the training is not as it should be.
    """
    check_tasks(recipe)
    cluster = cluster_of(engine)
    processes = Processes.start()
    if not processes.is_main:
        logger.setLevel(logging.ERROR)  # the main process says it
    try:
        if processes.is_main and not force:
            check_replaced(Path(run), recipe)
        with locked(Path(run)) if processes.is_main else nullcontext():
            shown = progress and processes.is_main
            return _Run(recipe, Path(run), data, processes, force, loggers, cluster, shown).go()
    finally:
        processes.stop()


def check_tasks(recipe: Recipe) -> None:
    """Raise SettingError if a recipe names a task that is unknown, or several where one is wanted."""
    for stage in recipe.stages:
        if isinstance(stage.settings, LearningSettings):
            if isinstance(stage.settings.evaluate, DevSettings):
                _dev_task(stage.settings.evaluate.task, f"stages.{stage.name}.evaluate.task")
            for name in stage.settings.trajectory.sets if stage.settings.trajectory is not None else ():
                trajectory_task(name)
    choose_tasks(recipe.evaluate)


def _usual(settings: Any) -> dict[str, float]:
    """Return what settings of memory that are null stand for in a stage's key: the numbers of a CPU, on any machine."""
    return {
        "max_batch_tokens": getattr(settings, "usual_batch_tokens", 0),
        "max_activation_gb": USUAL_ACTIVATION_GB,
    }


class _Run:
    """One run in its folder."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        data: str | Path | None,
        processes: Processes,
        force: bool,
        loggers: Sequence[str],
        cluster: ClusterSettings | None,
        progress: bool,
    ) -> None:
        self.recipe, self.folder, self.data, self.force = recipe, folder, data, force
        self.processes, self.loggers, self.progress = processes, loggers, progress
        self.cluster = cluster
        self.done: list[StageResult] = []

    def go(self) -> RunResult:
        if self.processes.is_main:
            with atomic_write(self.folder / RECIPE, "w") as stream:
                stream.write(self.recipe.as_yaml())
        self._describe()
        for stage in self.recipe.stages:
            self.done.append(self._run_stage(stage))
            self._describe()
        if self.processes.is_main:
            join_logs(self.folder, [result.folder for result in self.done])
        encoders = [result.output.path for result in self.done if result.output.path.name == ENCODER]
        results = self._finish(encoders[-1]) if encoders and self.processes.is_main else None
        if self.processes.is_main:
            record_run(self.folder)
        encoder = self.folder / ENCODER if encoders else None
        self.processes.wait()
        return RunResult(tuple(self.done), encoder, results, self.recipe, self.folder, self.processes.is_main)

    def _run_stage(self, stage: Stage) -> StageResult:
        folder = self.folder / "stages" / f"{len(self.done) + 1:02d}-{stage.name}"
        folders = [*(result.folder for result in self.done), folder]
        kind = KINDS[stage.kind]
        context = Context(
            name=stage.name,
            folder=folder,
            seed=self.recipe.seed,
            outputs={result.name: result.output for result in self.done},
            processes=self.processes,
            score=self._score,
            measure=self._measure,
            on_log=log_to(self.folder, stage.name, folders, loggers=self.loggers) if self.processes.is_main else None,
            cluster=self.cluster,
            progress=self.progress,
        )
        start_s = time.monotonic()
        settings = {name: value for name, value in stage.dump().items() if name not in NO_CHANGE}
        settings |= {name: usual for name, usual in _usual(stage.settings).items() if settings.get(name, usual) is None}
        if (skipped := self._unchanged(stage, settings, folder)) is not None:
            return skipped
        work = kind.work(stage.settings, context)
        seen = self._look(stage, settings, context.asked) if self.processes.is_main else None
        key = sha256_of_json([stage.kind, settings, _deciding(work.inputs), self.recipe.seed])
        output = Output(folder / kind.output, key)
        about = {"kind": stage.kind, "inputs": work.inputs}
        place = StageFolder(self.folder, folder, output=output.path, key=key, about=about)
        if self.processes.is_main and not self.force and place.is_of_others and (self.folder / ENCODER).exists():
            record_run(self.folder)
            raise would_be_lost(self.folder, f"the stage {stage.name} has other inputs now")
        record = place.prepare() if self.processes.is_main else None
        if self.processes.share(float(record is not None)):
            record = record or {}
            if self.processes.is_main and record.get("seen") != seen:
                place.finish({**record, "seen": seen})
            return StageResult(stage.name, folder, output, True, record.get("notes", {}), record.get("time_s", 0.0))
        earlier_s: float = read_record(folder / CLOCK).get("time_s", 0.0)
        try:
            notes = work.run()
        finally:
            time_s = earlier_s + time.monotonic() - start_s
            if self.processes.is_main:
                write_json(folder / CLOCK, {"time_s": time_s})
        if self.processes.is_main:
            join_logs(self.folder, folders)
            place.finish({**about, "notes": notes, "time_s": time_s, "seen": seen})
        self.processes.wait()
        return StageResult(stage.name, folder, output, False, notes, time_s)

    def _look(self, stage: Stage, settings: dict[str, Any], asked: Sequence[Asked]) -> dict[str, Any] | None:
        decides = {"kind": stage.kind, "seed": self.recipe.seed, "settings": settings}
        return look(decides, [result.output.key for result in self.done], asked)

    def _unchanged(self, stage: Stage, settings: dict[str, Any], folder: Path) -> StageResult | None:
        """Return a stage that is done and whose files have the sizes and times that they had: none of them is read."""
        is_done, output = False, folder / KINDS[stage.kind].output
        if self.processes.is_main:
            record = trusted_record(folder)
            seen = record.get("seen")
            if seen and seen == self._look(stage, settings, [(*each,) for each in seen["models"]]):
                place = StageFolder(self.folder, folder, output=output, key=record["key"], about={})
                is_done = place.prepare() is not None
        if not self.processes.share(float(is_done)):
            return None
        record = trusted_record(folder)
        result = Output(output, record["key"])
        return StageResult(stage.name, folder, result, True, record.get("notes", {}), record.get("time_s", 0.0))

    def _describe(self) -> None:
        """Write down what was done, and with what."""
        if not self.processes.is_main:
            return
        description = {
            "recipe": self.recipe.name,
            "seed": self.recipe.seed,
            "versions": versions(),
            "machine": machine(),
            "num_processes": self.processes.world,
            "stages": {result.name: read_record(result.folder / "stage.json") for result in self.done},
        }
        write_json(self.folder / DESCRIPTION, description)

    def _finish(self, encoder: Path) -> Evaluation | None:
        """Copy the last encoder, score it, and write its card."""
        if copy_folder(encoder, self.folder / ENCODER):
            (self.folder / RESULTS).unlink(missing_ok=True)  # those of another encoder
        found = self._evaluate()
        records = {result.name: read_record(result.folder / "stage.json") for result in self.done}
        write_card(encoder, self.folder / ENCODER, self.recipe, records, found)
        return found

    def _evaluate(self) -> Evaluation | None:
        if not self.recipe.evaluate:
            return None
        loaded = Encoder.load(self.folder / ENCODER, device=str(self.processes.device))
        results = read_record(self.folder / RESULTS)
        asked = {task.name for task in choose_tasks(self.recipe.evaluate)}
        is_scored = asked <= results.get("tasks", {}).keys()  # data that was missing may have come
        if results.get("settings", {}).get("fingerprint") == loaded.fingerprint() and is_scored:
            return Evaluation.from_dict(results)
        return evaluate(
            loaded,
            tasks=self.recipe.evaluate,
            data=self.data,
            out=self.folder,
            name=self.recipe.name,
            cache=False,
            force=True,
            engine=self.cluster or LOCAL,
            progress=self.progress,
        )

    def _score(self, encoder: Encoder, source: Encoder | None, dev: Task | str, precision: str) -> Evaluate:
        """Return the function that scores an encoder on a dev task while it trains."""
        task = _dev_task(dev) if isinstance(dev, str) else dev
        folder = data_for([task], self.data)

        def score() -> dict[str, Any]:
            embed, options = self._embed(encoder, precision), self._options(source, precision)
            with _errors_only():
                result = task.run(folder, embed, options)
                line = {"dev": result["score"], "set": task.name}
                if any(task.name in names for names in DEV_SETS.values()):
                    result = trajectory_task(task.name).run(folder, embed, options)
                line |= {name: result[name] for name in ("alignment", "uniformity", "scores") if name in result}
            return line

        return score

    def _measure(
        self, encoder: Encoder, source: Encoder | None, trajectory: TrajectorySettings, precision: str
    ) -> Measure:
        """Return the function that measures an encoder while it trains: on parallel pairs, with what is trained there.

        Where the MLP is for training only, translations are near one another after it, and not before it.
        """
        tasks = [trajectory_task(name) for name in trajectory.sets]
        folder = data_for(tasks, self.data)

        def measure_one(task: Task) -> dict[str, Any]:
            with ExitStack() as stack:
                stack.enter_context(_errors_only())
                for each in (encoder, source) if task.name.startswith(PARALLEL) else ():
                    if each is not None and each.head.training:
                        stack.enter_context(each.head.as_in_training())
                embed, options = self._embed(encoder, precision), self._options(source, precision)
                return {"set": task.name, **_shape(task.run(folder, embed, options))}

        return lambda: [measure_one(task) for task in tasks]

    def _embed(self, encoder: Encoder, precision: str) -> VectorStore:
        is_sharded = self.processes.shards and encoder.head.training
        embedder = ShardedEncoder(encoder) if is_sharded else encoder
        return VectorStore(embedder, precision=precision)

    def _options(self, source: Encoder | None, precision: str) -> Options:
        return Options(source=None if source is None else self._embed(source, precision))


def _dev_task(name: str, where: str = "task") -> Task:
    """Return the task of a name; where several are named, separated by commas, the task whose score is their mean.

    Raises:
        SettingError: A task is unknown, or a name stands for several.
    """
    tasks = []
    for part in name.split(","):
        chosen = choose_tasks(part)
        if len(chosen) != 1:
            names = ", ".join(task.name for task in chosen)
            raise SettingError(f"{where} {part!r}: is {len(chosen)} tasks. Name those that select: {names}.")
        tasks += chosen
    return tasks[0] if len(tasks) == 1 else mean_of(tasks)


def _deciding(inputs: Any) -> Any:
    """Return inputs without the commits of datasets whose rows are known by their hash: another may hold the same."""
    if isinstance(inputs, list):
        return [_deciding(each) for each in inputs]
    if not isinstance(inputs, dict):
        return inputs
    named = {"revision"} if "sha256" in inputs else set()
    return {name: _deciding(value) for name, value in inputs.items() if name not in named}


def _shape(result: Result) -> dict[str, float]:
    return {name: result[name] for name in ("alignment", "uniformity") if name in result}


@contextmanager
def _errors_only() -> Iterator[None]:
    """Say nothing about texts that are cut, in every score anew and in the middle of a bar."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
