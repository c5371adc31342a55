"""What all stages that train an encoder have in common: where it starts, its rows, dropout, LoRA, and the result."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, cast

import torch
from pydantic import Field, model_validator
from torch import nn

from tercet.data.feeding.batches import Batches
from tercet.data.feeding.held_out import check_divisible, split_rows
from tercet.data.feeding.sources import Rows, open_rows
from tercet.data.rows.columns import RowKind
from tercet.data.rows.kinds import Text, Triplet
from tercet.data.rows.settings import RowSettings
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.settings import EncoderSettings
from tercet.encoder.model.tower import Dense, Tower
from tercet.errors import SettingError
from tercet.evaluation.tasks.own import file_of
from tercet.evaluation.tasks.task import Task
from tercet.evaluation.tasks.triplets import triplet_task
from tercet.storage.hashing import sha256_of_file
from tercet.training.loop.loop import Evaluate, Measure, Stateful, StepResult, TrainResult, train
from tercet.training.loop.settings import LoopSettings, StepRule
from tercet.training.loop.state import set_weights, weights_of
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.matryoshka import check_dims
from tercet.training.stages.adapters import LoraSettings, add_lora, merge_lora
from tercet.training.stages.collapse import warn_of_collapse
from tercet.training.stages.scores import DevSettings, TrajectorySettings
from tercet.training.stages.sharded import shard_tower
from tercet.training.stages.stage import Context, StageSettings
from tercet.training.stages.texts import placed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


NumberFormat = Literal["float32", "bfloat16", "float16"]


class StartSettings(StageSettings):
    """Which model a stage starts from."""

    start: str | None = None
    """A model by its name, or `@NAME`: the encoder of an earlier stage. The recipe's `start` where null."""

    tokenizer: str | None = None
    """The tokenizer of a fresh model (`random:t5-mini`), or another one than the model's own."""

    revision: str | None = None
    """The branch, tag or commit of a start on the hub."""

    convert_pickle: bool = False
    """Whether a start that has only pickled weights may be converted, weights only."""

    def names(self) -> list[str]:
        """Return the models that the stage uses."""
        return [name for name in (self.start, self.tokenizer) if name is not None]

    def describe(self, context: Context) -> dict[str, Any]:
        """Return what decides the start, as JSON.

        Raises:
            SettingError: There is none.
        """
        if self.start is None:
            raise SettingError(f"stages.{context.name}.start: is missing, and the recipe has none. Name a model.")
        return {
            "start": context.describe_model(self.start, revision=self.revision, pickles=self.convert_pickle),
            "tokenizer": self.tokenizer and context.describe_model(self.tokenizer, weights=False),
        }

    def placed(self, context: Context) -> dict[str, Any]:
        """Return where the start is found: arguments of `Encoder.load` and `load_generator`."""
        return {
            "name": context.place(self.start or ""),
            "tokenizer": self.tokenizer and context.place(self.tokenizer),
            "revision": self.revision,
            "convert_pickle": self.convert_pickle,
            "seed": context.seed,
        }


class EncoderStartSettings(StartSettings):
    """Which model a stage starts from, and how it is read out."""

    encoder: EncoderSettings = EncoderSettings()
    """Readout, projection, prompt, max_tokens and so on; the recipe's `encoder` where a setting is not given."""


class LearningSettings(StartSettings, LoopSettings):
    """The settings of every stage that trains a model on rows."""

    rows: RowSettings
    """What it learns from: files, datasets of the hub, or `@NAME`, the rows of an earlier stage."""

    batch: int = Field(ge=2)
    """How many rows make a step, over all processes."""

    dropout: float | None = Field(default=None, ge=0, lt=1)
    """The share of numbers that are dropped in training; as the model has it where null."""

    trajectory: TrajectorySettings | None = None
    """Alignment and uniformity in between; null for none."""

    lora: LoraSettings | None = None
    """Train small matrices beside the transformer's own, which stay as they are; null for all weights."""

    weights: NumberFormat = "float32"
    """How the model's weights are stored; the 16-bit formats are for the last stage."""

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if isinstance(self.steps, StepRule) and any(source.stream for source in self.rows.sources):
            raise ValueError("steps: follow from the number of rows, and a stream has none. Give a number")
        return self

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        return [*super().names(), *(source.path for source in self.rows.sources)]


class TrainedSettings(LearningSettings, EncoderStartSettings, ComputeSettings):
    """The settings of every stage that trains an encoder."""

    fresh_mlp: bool = Field(default=False, exclude_if=lambda fresh: not fresh)
    """Whether the MLP of `cls-mlp` is drawn at random, as SimCSE's code does; else it starts as the start's own, or as
    the pooler of a BERT."""

    evaluate: DevSettings | None = None
    """Scores on a dev task in between; null for none."""

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.evaluate is not None and self.evaluate.held_out is not None:
            try:
                check_divisible(self.rows)
            except SettingError as error:
                raise ValueError(str(error)) from error
        return self

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        dev = self.evaluate.rows if self.evaluate is not None else None
        return [*super().names(), *(source.path for source in (dev.sources if dev else ()))]


class Objective(Protocol):
    """What is optimised."""

    @property
    def module(self) -> nn.Module:
        """Everything that is trained."""

    def step(self, batch: Any) -> StepResult:
        """Leave the gradients of a batch."""


class TrainedEncoder(ABC):
    """The work of a stage that trains an encoder; a kind says what rows it wants and what it optimises."""

    row_kind: RowKind
    source: Encoder | None = None
    """What embeds the source side of parallel pairs, where it is another encoder."""
    companions: tuple[Encoder, ...] = ()
    """Encoders that are trained besides the one that comes out."""
    extra_state: Mapping[str, Stateful] = {}
    """What checkpoints keep besides what is trained."""

    def __init__(self, settings: TrainedSettings, context: Context) -> None:
        self.settings = settings
        self.context = context
        self.inputs = settings.describe(context)
        dev = settings.evaluate
        rows, dev_rows = placed(settings.rows, context), dev.rows if dev is not None else None
        if dev is not None and dev.held_out is not None:
            rows, dev_rows = split_rows(rows, dev.held_out, kind=self.row_kind)
        self.rows = open_rows(rows, kind=self.row_kind, rank=context.processes.rank, progress=context.progress)
        self.inputs["rows"] = self.rows.describe()
        self._dev: Task | str | None = dev.task if dev is not None else None
        files = [*filter(None, map(file_of, dev.task.split(",")))] if dev is not None else []
        if files:  # they select the weights
            hashes = [sha256_of_file(file) for file in files]
            self.inputs["dev"] = {"sha256": hashes[0] if len(hashes) == 1 else hashes}
        if dev is not None and dev_rows is not None:
            held_out = open_dev_rows(dev_rows, "triplets", context)
            self.inputs["dev"] = held_out.describe()
            name = (dev.rows or settings.rows).sources[0].path
            if any(isinstance(row, Text) for row in held_out):
                raise SettingError(
                    f"stages.{context.name}.evaluate: {name} has texts alone, and nothing to score them by. "
                    "Name a task, or rows of pairs or triplets."
                )
            self._dev = triplet_task(name, cast("Iterable[Triplet]", held_out))

    def start(self) -> Encoder:
        """Return the encoder before it is trained."""
        return self.load()

    @abstractmethod
    def objective(self, encoder: Encoder, gather: Gather | None) -> Objective:
        """Return what is optimised."""

    def run(self) -> dict[str, Any]:
        """Train, and write the encoder."""
        settings, context, processes = self.settings, self.context, self.context.processes
        encoder, dev, trajectory = self.start(), self._dev, settings.trajectory
        with ExitStack() as stack:
            for each in (encoder, *self.companions):
                stack.enter_context(other_dropout(each.tower.backbone, settings.dropout))
            if settings.lora is not None:
                add_lora(encoder.tower, settings.lora, seed=context.seed)
            if processes.shards:
                self._shard(encoder.tower)
            objective = self.objective(encoder, Gather() if processes.world > 1 else None)
            watched = encoder, self.source
            result = train_on_rows(
                objective,
                self.rows,
                settings=settings,
                context=context,
                evaluate=context.score(*watched, dev, settings.precision) if dev else None,
                measure=context.measure(*watched, trajectory, settings.precision) if trajectory else None,
                extra_state=self.extra_state,
            )
        self.save(encoder)
        return {"num_steps": result.num_steps, "best": result.best}

    def load(self) -> Encoder:
        """Return the encoder with the weights of its start."""
        settings, context = self.settings, self.context
        device = str(context.processes.device)
        encoder = Encoder.load(**settings.placed(context), device=device, **settings.encoder.given())
        check_dims(getattr(settings, "dims", ()), encoder, stage=context.name)
        head = encoder.tower.head
        if settings.fresh_mlp and head.mlp is None:
            raise SettingError(f"stages.{context.name}.fresh_mlp: there is no MLP. Set encoder.readout: cls-mlp.")
        if settings.fresh_mlp:
            draw_mlp(encoder, head.in_width, seed=context.seed)
        return encoder

    def save(self, encoder: Encoder) -> None:
        """Write the encoder when it is trained."""
        if self.context.processes.shards:
            weights = weights_of(encoder.tower)
            if self.context.processes.is_main:
                encoder = self.load()
                set_weights(encoder.tower, weights)
        if self.settings.lora is not None:
            merge_lora(encoder.tower)
        encoder.dtype = getattr(torch, self.settings.weights)
        encoder.trained_dims = getattr(self.settings, "dims", ())
        if self.context.processes.is_main:
            warn_of_collapse(encoder, self.rows, name=self.context.name)
            encoder.save(self.context.folder / "encoder")

    def _shard(self, tower: Tower) -> None:
        if self.settings.lora is not None:
            raise SettingError(f"stages.{self.context.name}.lora: does not go with FSDP. Take one of the two.")
        shard_tower(tower, self.context.processes)


def draw_mlp(encoder: Encoder, width: int, *, seed: int) -> None:
    """Give an encoder a fresh MLP with so many outputs."""
    head = encoder.tower.head
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head.mlp = Dense(head.in_width, width, bias=True, activation="tanh").to(encoder.device)


def open_dev_rows(rows: RowSettings, kind: RowKind, context: Context) -> Rows:
    """Open the rows that a model is scored on while it trains.

    Raises:
        SettingError: They have no end.
    """
    opened = open_rows(placed(rows, context), kind=kind, rank=context.processes.rank)
    if opened.num_rows is None:
        raise SettingError(f"stages.{context.name}.evaluate.rows: are streamed, without end. Set stream: false.")
    return opened


_DROPOUTS = ("dropout_rate", "hidden_dropout_prob", "attention_probs_dropout_prob")


def train_on_rows(
    objective: Objective,
    rows: Rows,
    *,
    settings: LearningSettings,
    context: Context,
    evaluate: Evaluate | None = None,
    measure: Measure | None = None,
    extra_state: Mapping[str, Stateful] | None = None,
) -> TrainResult:
    """Train what an objective optimises on the rows of a stage."""
    processes, rule = context.processes, settings.steps
    if isinstance(rule, StepRule):  # and rows that are counted, as the settings have checked
        settings = settings.model_copy(update={"steps": rule.steps(rows.num_rows or 0, batch=settings.batch)})

    def batches_from(state: dict[str, Any] | None) -> Batches:
        return rows.batches(
            batch=settings.batch,
            seed=context.seed,
            epochs=settings.epochs,
            state=state,
            rank=processes.rank,
            world=processes.world,
        )

    return train(
        objective.module,
        batches_from,
        objective.step,
        settings=settings,
        folder=context.folder,
        seed=context.seed,
        label=context.name,
        evaluate=evaluate,
        measure=measure,
        on_log=context.on_log,
        extra_state=extra_state,
        processes=processes,
        progress=context.progress,
    )


@contextmanager
def other_dropout(model: "PreTrainedModel", share: float | None) -> Iterator[None]:
    """Train with another dropout than the model's; what is saved has its own again."""
    before = {name: getattr(model.config, name) for name in _DROPOUTS if hasattr(model.config, name)}
    set_dropout(model, share)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(model.config, name, value)


def set_dropout(model: "PreTrainedModel", share: float | None) -> None:
    """Set the dropout of a model; None leaves it as it is."""
    if share is None:
        return
    for name in _DROPOUTS:
        if hasattr(model.config, name):
            setattr(model.config, name, share)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        elif isinstance(getattr(module, "dropout", None), float):  # the attention of T5
            module.dropout = share  # type: ignore[assignment]
