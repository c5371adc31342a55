"""How the learning rate changes, as a share of its highest value."""

import math

from tercet.training.loop.settings import LoopSettings


def rate_at(step: int, *, num_steps: int, settings: LoopSettings) -> float:
    """Return the learning rate of a step; the first step is 1. Behind the last one a decaying rate would be 0."""
    share, fraction = {
        "hold-linear": (_hold_linear, settings.hold_fraction),
        "warmup-linear": (_warmup_linear, settings.warmup_fraction),
        "cosine": (_cosine, settings.warmup_fraction),
        "constant": (_constant, 0.0),
    }[settings.schedule]
    num_first = min(round(fraction * num_steps), num_steps - 1)
    return settings.learning_rate * share(step - 1, num_first, num_steps)


def _hold_linear(num_done: int, num_held: int, num_steps: int) -> float:
    return min(1.0, (num_steps - num_done) / (num_steps - num_held))


def _warmup_linear(num_done: int, num_up: int, num_steps: int) -> float:
    return (num_done + 1) / num_up if num_done < num_up else (num_steps - num_done) / (num_steps - num_up)


def _cosine(num_done: int, num_up: int, num_steps: int) -> float:
    if num_done < num_up:
        return (num_done + 1) / num_up
    return (1 + math.cos(math.pi * (num_done - num_up) / (num_steps - num_up))) / 2


def _constant(_num_done: int, _num_first: int, _num_steps: int) -> float:
    return 1.0
