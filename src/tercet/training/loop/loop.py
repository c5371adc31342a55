"""The training loop: step after step, with a log, scores in between, and checkpoints that it goes on from."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tercet.errors import DivergedError, ModelError, SettingError
from tercet.storage.files import make_folder
from tercet.storage.hashing import sha256_of_json
from tercet.storage.progress import progress_bar
from tercet.training.loop.checkpoints import Checkpoints
from tercet.training.loop.gradients import clip_gradients, first_bad_weight, first_not_finite
from tercet.training.loop.log import Log
from tercet.training.loop.optimizers import make_optimizer
from tercet.training.loop.processes import Processes, whole
from tercet.training.loop.schedules import rate_at
from tercet.training.loop.settings import LoopSettings, TimesRule, interval
from tercet.training.loop.state import optimizer_state, set_optimizer_state, set_weights, weights_of

logger = logging.getLogger("tercet")

ALONE = Processes()


@dataclass(frozen=True)
class StepResult:
    """What one step of an objective reports."""

    loss: float
    """The loss of the whole batch, over all processes."""

    metrics: dict[str, float]
    """What else goes into the log."""


class Batches(Protocol):
    """Batches of rows, one after another, that can be started again anywhere."""

    num_batches: int | None
    """How many there are in all, where that is known."""

    def __next__(self) -> Any:
        """Return the next batch."""

    def state(self) -> dict[str, Any]:
        """Return the position after the last batch, as JSON."""


class Stateful(Protocol):
    """Something besides the module that must be as it was when training goes on, such as a queue."""

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return its tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Put them back."""


Step = Callable[[Any], StepResult]
Evaluate = Callable[[], dict[str, Any]]
Measure = Callable[[], list[dict[str, Any]]]


@dataclass(frozen=True)
class TrainResult:
    """What a training came to. The module holds the weights that were kept."""

    num_steps: int
    best: dict[str, Any] | None
    """The `step` and `score` of the best weights, where the model was scored."""


def train(
    module: nn.Module,
    batches: Callable[[dict[str, Any] | None], Batches],
    step: Step,
    *,
    settings: LoopSettings,
    folder: Path,
    seed: int = 0,
    label: str = "training",
    evaluate: Evaluate | None = None,
    measure: Measure | None = None,
    on_log: Callable[[dict[str, Any]], None] | None = None,
    extra_state: Mapping[str, Stateful] | None = None,
    processes: Processes = ALONE,
    progress: bool = False,
) -> TrainResult:
    """Train a module. Killed and called again with the same arguments, it goes on and ends with the same weights.

    Args:
        module: Everything that is trained.
        batches: Returns the batches from a position on, or from the start.
        step: Computes a batch forward and backward and leaves gradients, whose sum over all processes is the gradient.
        settings: How long, and by what rule.
        folder: Where checkpoints and the log (`metrics.jsonl`) are kept.
        seed: What dropout is drawn with, anew in every step.
        label: What the bar and the log call this training.
        evaluate: Scores the module: what it returns goes into the log, and `dev` is the score, higher is better.
        measure: Measures the module, as often as `settings.trajectory` says: what it returns are lines of the log.
        on_log: Gets every line of the log, too.
        extra_state: What else checkpoints keep, the same in every process.
        processes: The processes that train together.
        progress: Whether a bar is shown.

    Raises:
        DivergedError: A loss, a gradient or a weight is not finite. The last checkpoint is good.
        OutputError: A checkpoint or the log cannot be written.
    """
    for name, function in (("evaluate", evaluate), ("trajectory", measure)):
        if (function is None) != (getattr(settings, name) is None):
            raise SettingError(f"{name}: settings and function must both be given, or neither. Give both.")
    make_folder(folder)
    log = Log(folder / "metrics.jsonl" if processes.is_main else None, on_log)
    extras = extra_state or {}
    training = _Training(module, step, settings, folder, seed, label, evaluate, measure, log, extras, processes)
    return training.run(batches, progress=progress)


class _Training:
    """One training: what `train` was given, and where it is."""

    def __init__(
        self,
        module: nn.Module,
        step: Step,
        settings: LoopSettings,
        folder: Path,
        seed: int,
        label: str,
        evaluate: Evaluate | None,
        measure: Measure | None,
        log: Log,
        extras: Mapping[str, Stateful],
        processes: Processes,
    ) -> None:
        self.module, self.compute, self.evaluate, self.measure = module, step, evaluate, measure
        self.settings, self.seed, self.label = settings, seed, label
        self.log, self.extras, self.processes = log, extras, processes
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.optimizer = make_optimizer(module, settings)
        self.trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.num_done = 0
        self.best: dict[str, Any] | None = None
        self.dev: float | None = None

    def run(self, batches_from: Callable[[dict[str, Any] | None], Batches], *, progress: bool) -> TrainResult:
        batches = batches_from(self._resume())
        steps = self.settings.steps
        num_steps = steps if isinstance(steps, int) else batches.num_batches
        if num_steps is None:
            raise SettingError("epochs: these rows are not counted, so an epoch has no end. Give steps instead.")
        self.module.train()
        show = progress and self.processes.is_main
        with progress_bar(f"training {self.label}", total=num_steps, unit="steps", enabled=show) as advance:
            advance(self.num_done, earlier=True)
            if self.num_done == 0:
                self._measure()
                self._score(candidate=False)  # the start: for the log only
            while self.num_done < num_steps:
                line = self._step(next(batches), num_steps)
                self.num_done += 1
                if self._is_due(self.settings.log_every, num_steps) or self.num_done == 1:
                    self.log.add(line)
                dev, trajectory = self.settings.evaluate, self.settings.trajectory
                if trajectory is not None and self._is_due(trajectory.every, num_steps):
                    self._measure()
                is_best = dev is not None and self._is_due(dev.every, num_steps) and self._score(dev.keep == "best")
                if is_best or self._is_due(self.settings.checkpoint_every, num_steps):
                    self._save(batches.state())
                advance(1, note=self._note(line["loss"]))
        self._load_best()
        self.module.eval()
        return TrainResult(num_steps, self.best)

    def _is_due(self, every: int | TimesRule, num_steps: int) -> bool:
        return self.num_done % interval(every, num_steps=num_steps) == 0 or self.num_done == num_steps

    def _note(self, loss: float) -> str:
        return f"loss {loss:.4f}" + ("" if self.dev is None else f"  dev {self.dev:.2f}")

    def _step(self, batch: Any, num_steps: int) -> dict[str, Any]:
        number = self.num_done + 1
        rate = rate_at(number, num_steps=num_steps, settings=self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        # a seed of its own for every step and process: nothing about chance has to be stored
        torch.manual_seed(int(sha256_of_json([self.seed, number, self.processes.rank])[:15], 16))
        self.optimizer.zero_grad(set_to_none=True)
        result = self.compute(batch)
        if not math.isfinite(result.loss):
            raise self._diverged(number, f"the loss is {result.loss}; no update was made")
        self.processes.sum_gradients(parameter for _, parameter in self.trained)
        norm = clip_gradients(self.trained, self.settings.clip)
        if not math.isfinite(norm):
            name = first_not_finite(self.trained)
            raise self._diverged(number, f"the gradient of {name} is not finite; no update was made")
        self.optimizer.step()
        if bad := first_bad_weight(self.trained):
            raise self._diverged(number, f"the update made {bad} not finite, and is not kept")
        # fused optimizers do not count their changes, and encoders keep things that they computed from weights
        torch.autograd.graph.increment_version([parameter for _, parameter in self.trained])
        line = {"stage": self.label, "step": number, "loss": result.loss, "learning_rate": rate}
        return {**line, "gradient_norm": norm, **result.metrics}

    def _diverged(self, number: int, what: str) -> DivergedError:
        steps = self.checkpoints.steps()
        kept = f"The checkpoint of step {steps[-1]} is good" if steps else "There is no checkpoint yet"
        return DivergedError(f"{self.label}, step {number}: {what}. {kept}. Lower learning_rate or clip.")

    def _score(self, candidate: bool) -> bool:
        """Score the module, and return whether it is a candidate and the best so far."""
        if self.evaluate is None:
            return False
        line = self.evaluate()
        self.dev = score = self.processes.share(line["dev"])
        self.log.add({"stage": self.label, "step": self.num_done, **line, "dev": score})
        is_best = candidate and (self.best is None or score > self.best["score"])
        if is_best:
            self.best = {"step": self.num_done, "score": score}
        return is_best

    def _measure(self) -> None:
        for line in self.measure() if self.measure is not None else ():
            self.log.add({"stage": self.label, "step": self.num_done, **line})

    def _save(self, data: dict[str, Any]) -> None:
        tensors, numbers = optimizer_state(self.module, self.optimizer)
        groups = {"weights": weights_of(self.module), "optimizer": tensors}
        for name, extra in self.extras.items():
            groups[f"extra-{name}"] = {key: whole(value).clone() for key, value in extra.state_dict().items()}
        if self.processes.is_main:
            state = {"data": data, "best": self.best, "optimizer": numbers, "log_bytes": self.log.position()}
            self.checkpoints.save(self.num_done, groups, state)

    def _resume(self) -> dict[str, Any] | None:
        """Go to the newest good checkpoint and return its position in the data; None at the start."""
        newest = self.checkpoints.newest() if self.processes.is_main else None
        has_best = newest is not None and newest.state["best"] is not None
        self.num_done = int(self.processes.share(newest.step if newest else 0))
        if self.num_done == 0:
            self.log.rewind(0)
            return None
        checkpoint = newest or self.checkpoints.read(self.num_done)
        if checkpoint is None:
            raise ModelError(f"{self.checkpoints.folder}: every process must see the same files. Share the folder.")
        set_weights(self.module, checkpoint.tensors("weights"))
        set_optimizer_state(self.module, self.optimizer, checkpoint.tensors("optimizer"), checkpoint.state["optimizer"])
        for name, extra in self.extras.items():
            extra.load_state_dict(checkpoint.tensors(f"extra-{name}"))
        self.best = checkpoint.state["best"] if self.processes.share(float(has_best)) else None
        self.log.rewind(checkpoint.state["log_bytes"])
        data: dict[str, Any] = checkpoint.state["data"]
        return data

    def _load_best(self) -> None:
        if self.best is None or self.best["step"] == self.num_done:
            return
        self.processes.wait()  # until the main process has written it
        checkpoint = self.checkpoints.read(self.best["step"])
        if checkpoint is None:
            raise ModelError(f"{self.checkpoints.folder}: the best checkpoint is damaged. Run the command again.")
        set_weights(self.module, checkpoint.tensors("weights"))
