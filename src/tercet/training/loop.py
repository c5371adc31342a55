"""The training loop."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepResult:
    """What one step of an objective reports."""

    loss: float
    metrics: dict[str, float]
