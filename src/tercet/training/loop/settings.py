"""What can be chosen about a training loop."""

from typing import Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from tercet.data.rows.settings import RowSettings
from tercet.storage.settings import Settings


class ScoreSettings(Settings):
    """When a model is scored while it trains, and which weights are kept; a higher score is better."""

    every: int = Field(default=250, ge=1)
    """How many steps lie between two scores. There is one before the first step and one behind the last, too."""

    keep: Literal["best", "last"] = "best"
    """Whether the weights with the best score come out, or the last ones. The start is never the best."""


class DevSettings(ScoreSettings):
    """When and on what an encoder is scored while it trains."""

    task: str = "STSB-dev"
    """The task."""

    rows: RowSettings | None = Field(default=None, exclude_if=lambda rows: rows is None)
    """Triplets in place of a task: how often the positive is nearer to the anchor than the negatives."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.rows is not None and self.task != "STSB-dev":
            raise ValueError("task and rows are two things to score on: give one of them")
        return self


class TrajectorySettings(Settings):
    """When and on what alignment and uniformity are measured while a model trains. Nothing is selected by them."""

    every: int = Field(default=100, ge=1)
    """How many steps lie between two measurements. There is one before the first step and one behind the last, too."""

    sets: list[str] = Field(default=["STSB-dev"], min_length=1)
    """Scored pairs: an STS task, or `geometry:FILE`. Parallel pairs: `parallel:FILE`, or NTREX, `ntrex:eng-zho-CN`."""


class LoopSettings(Settings):
    """How long and by what rule weights are updated. Exactly one of `steps` and `epochs` is given."""

    steps: int | None = Field(default=None, ge=1)
    """How many updates."""

    epochs: int | None = Field(default=None, ge=1)
    """How many times every row is seen, in place of `steps`."""

    learning_rate: float = Field(gt=0, allow_inf_nan=False)
    """The highest rate."""

    rates: dict[str, PositiveFloat] = Field(default={}, exclude_if=lambda rates: not rates)
    """What the rate is multiplied with, by how the names of parameters begin in their model; the first that fits
    counts: `{encoder: 0.1, shared: 0.1}`."""

    optimizer: Literal["adafactor", "adamw"] = "adafactor"
    """`adafactor` as the Sentence-T5 and GenSE papers use it (a given rate, no scaling by parameters), or `adamw`."""

    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How much weights shrink, relative to the rate; biases, norms and scalars never do."""

    schedule: Literal["hold-linear", "warmup-linear", "cosine", "constant"] = "hold-linear"
    """How the rate changes: held and then linear to 0, up and then linear to 0, up and then half a cosine, or not."""

    hold_fraction: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps for which `hold-linear` holds."""

    warmup_fraction: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps for which `warmup-linear` and `cosine` go up."""

    clip: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The largest norm of the whole gradient; a larger one is scaled down to it. None for no limit."""

    evaluate: ScoreSettings | None = None
    """Scores in between; None for none."""

    trajectory: TrajectorySettings | None = None
    """Alignment and uniformity in between; None for none."""

    log_every: int = Field(default=10, ge=1)
    """How many steps lie between two lines of the log."""

    checkpoint_every: int = Field(default=250, ge=1)
    """How many steps a killed run loses at most."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("exactly one of steps and epochs must be given")
        return self
