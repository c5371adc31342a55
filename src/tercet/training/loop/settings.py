"""What can be chosen about a training loop."""

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, PositiveFloat, Tag, model_validator

from tercet.storage.settings import NUMBER, RULE, Settings, number_or_rule


class StepRule(Settings):
    """How many updates, where that follows from the number of rows: `steps: {epochs: 3, least: 40, most: 1000}`."""

    epochs: int = Field(ge=1)
    """How many times every row is seen: the steps are `epochs` x rows / `batch`, rounded."""

    least: int = Field(default=1, ge=1)
    """The fewest steps."""

    most: int | None = Field(default=None, ge=1)
    """The most steps; null for no limit. It wins over `least`."""

    def steps(self, num_rows: int, *, batch: int) -> int:
        """Return how many steps so many rows get."""
        steps = max(round(self.epochs * num_rows / batch), self.least)
        return steps if self.most is None else min(steps, self.most)


class TimesRule(Settings):
    """How many steps lie between two scores, where that follows from the number of steps: `every: {times: 5}`."""

    times: int = Field(ge=1)
    """How many scores there are, evenly over all steps; the one before the first step does not count."""


Every = Annotated[
    Annotated[int, Field(ge=1), Tag(NUMBER)] | Annotated[TimesRule, Tag(RULE)], Discriminator(number_or_rule)
]
"""How many steps lie between two scores: a number, or `{times: NUMBER}`."""

Steps = Annotated[
    Annotated[int, Field(ge=1), Tag(NUMBER)] | Annotated[StepRule, Tag(RULE)], Discriminator(number_or_rule)
]
"""How many updates: a number, or `{epochs: NUMBER, least: NUMBER, most: NUMBER}`."""


def interval(every: int | TimesRule, *, num_steps: int) -> int:
    """Return how many steps lie between two scores of a training with so many steps."""
    return -(-num_steps // every.times) if isinstance(every, TimesRule) else every


class ScoreSettings(Settings):
    """When a model is scored while it trains, and which weights are kept; a higher score is better."""

    every: Every = 250
    """How many steps lie between two scores, or `{times: 5}`: so many scores, evenly over all steps. There is also one
    before the first step and one after the last."""

    keep: Literal["best", "last"] = "best"
    """Whether the weights with the best score come out, or the last ones. The start is never the best."""


class MeasureSettings(Settings):
    """When something is measured while a model trains. Nothing is selected by it."""

    every: Every = 100
    """How many steps lie between two measurements, or `{times: 5}`. There is also one before the first step and one
    after the last."""


class LoopSettings(Settings):
    """How long and by what rule weights are updated. Exactly one of `steps` and `epochs` is given."""

    steps: Steps | None = None
    """How many updates; or `{epochs: 3, least: 40, most: 1000}`: so many times over the rows, within these bounds."""

    epochs: int | None = Field(default=None, ge=1)
    """How many times every row is seen, in place of `steps`."""

    learning_rate: float = Field(gt=0, allow_inf_nan=False)
    """The highest rate."""

    rates: dict[str, PositiveFloat] = Field(default={}, exclude_if=lambda rates: not rates)
    """What the rate is multiplied with, by a part of parameters' names, from a dot on; the first that fits counts:
    `{encoder: 0.1, shared: 0.1}`."""

    optimizer: Literal["adafactor", "adamw", "rmsprop"] = "adafactor"
    """`adafactor` as the papers use it (a given rate, no first moment), `adamw`, or `rmsprop`."""

    scale_parameters: bool = Field(default=False, exclude_if=lambda scaled: not scaled)
    """Whether `adafactor` multiplies an update by the size of its parameter, so that the rate is a share of it: as in
    T5X, with which Sentence-T5 was trained. GenSE's trainer does not."""

    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How much weights shrink, relative to the rate; biases, norms and scalars never do."""

    schedule: Literal["hold-linear", "warmup-linear", "cosine", "constant"] = "hold-linear"
    """How the rate changes: `hold-linear` holds it, then falls to 0; `warmup-linear` and `cosine` rise, then fall to 0;
    `constant` stays."""

    hold_fraction: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps for which `hold-linear` holds."""

    warmup_fraction: float = Field(default=0.1, ge=0, lt=1)
    """The share of the steps for which `warmup-linear` and `cosine` go up."""

    clip: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)
    """The largest norm of the whole gradient; a larger one is scaled down to it. None for no limit."""

    evaluate: ScoreSettings | None = None
    """Scores in between; None for none."""

    trajectory: MeasureSettings | None = None
    """Measurements in between; None for none."""

    log_every: int = Field(default=10, ge=1)
    """How many steps lie between two lines of the log."""

    checkpoint_every: int = Field(default=250, ge=1)
    """How many steps a killed run loses at most."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("exactly one of steps and epochs must be given")
        if self.optimizer == "rmsprop" and self.weight_decay:
            raise ValueError("weight_decay: rmsprop would add it to gradients. Set weight_decay: 0, or take adamw")
        return self
