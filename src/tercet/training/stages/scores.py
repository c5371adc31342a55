"""On what an encoder is scored and measured while it trains."""

from typing import Self

from pydantic import Field, model_validator

from tercet.data.rows.settings import HeldOut, RowSettings
from tercet.data.sets.groups import DEV_SETS
from tercet.training.loop.settings import MeasureSettings, ScoreSettings

_DEV_SET = DEV_SETS["sts"][0]


class DevSettings(ScoreSettings):
    """When and on what an encoder is scored while it trains."""

    task: str = _DEV_SET
    """The task, or several, separated by commas: then the mean of their scores counts."""

    rows: RowSettings | None = Field(default=None, exclude_if=lambda rows: rows is None)
    """Triplets in place of a task: how often the positive is nearer to the anchor than the negatives."""

    held_out: HeldOut | None = Field(default=None, exclude_if=lambda held_out: held_out is None)
    """A part of the stage's own rows in place of a task, scored like `rows`; nothing is learned from it. How large a
    share, or `{rows: 100, least: 0.1, most: 0.3}`: about so many rows, within these shares. Triplets of one anchor, and
    NLI pairs of one premise, stay together."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        given = [self.task != _DEV_SET, self.rows is not None, self.held_out is not None]
        if sum(given) > 1:
            raise ValueError("task, rows and held_out are three things to score on: give one of them")
        return self


class TrajectorySettings(MeasureSettings):
    """When and on what alignment and uniformity are measured while a model trains."""

    sets: list[str] = Field(default=[_DEV_SET], min_length=1)
    """Scored pairs: an STS task, or `geometry:FILE`. Parallel pairs: `parallel:FILE`, or NTREX, `ntrex:eng-zho-CN`."""
