"""Parallel contrast: a sentence against the source's vector of its translation, others in the batch, and a queue."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from tercet.data.rows.kinds import ParallelPair
from tercet.encoder.encoder import Encoder
from tercet.storage.hashing import text_key
from tercet.training.loop.loop import StepResult
from tercet.training.objectives.batch import merge_equal
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.contrast import batch_geometry, contrastive_loss
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.gradient_cache import learn_together
from tercet.training.objectives.matryoshka import MatryoshkaSettings, mean_over_widths
from tercet.training.objectives.queue import Queue
from tercet.training.objectives.temperature import TemperatureSettings, Trained

FrozenVectors = Callable[[Sequence[str]], Tensor]
"""Texts to the vectors of an encoder that does not change."""


class ParallelSettings(TemperatureSettings, MatryoshkaSettings):
    """What can be chosen about the parallel objective."""

    design: Literal["frozen", "dual", "multilingual"] = "frozen"
    """Whether the source is frozen, trained too, or the same encoder as the target (the paper's Figure 2)."""

    queue: int = Field(default=0, ge=0, le=300_000)
    """How many earlier vectors of the frozen source are negatives besides those of the batch."""

    temperature: PositiveFloat = 1.0
    """What cosines are divided by; from where it is trained."""

    learn_temperature: bool = True
    """Whether the temperature is trained too, from that value on."""

    mask_duplicates: bool = False
    """Whether sources with the text of a row's own are left out of its negatives, in the batch and the queue."""

    @model_validator(mode="after")
    def _queue_of_frozen(self) -> "ParallelSettings":
        if self.queue and self.design != "frozen":
            raise ValueError(f"queue {self.queue}: vectors of a source that is trained grow old. Set queue: 0")
        return self


class Parallel:
    """The parallel objective. The anchor is the target's vector, the positive its translation's.

    Args:
        encoder: The target, which is trained.
        source: The source's encoder where it is trained, or a function that gives the vectors of a frozen one.
        settings: What the loss is.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none. With it, the gradients of a step are
            those of the whole batch once they are summed over the processes.

    Attributes:
        module: Everything that is trained: the target's tower, the source's where it is another one and trained, and
            the temperature where it is learnt.
        queue: Earlier vectors of the source, the same in every process.
    """

    def __init__(
        self,
        encoder: Encoder,
        source: Encoder | FrozenVectors,
        settings: ParallelSettings,
        *,
        compute: ComputeSettings,
        gather: Gather | None = None,
    ) -> None:
        self._encoder, self._source, self._settings = encoder, source, settings
        self._compute, self._gather = compute, gather
        others = {"source": source.tower} if isinstance(source, Encoder) and source is not encoder else {}
        self.module = Trained(settings, tower=encoder.tower, **others).to(encoder.device)
        self.queue = Queue(settings.queue, encoder.head.training_width, device=encoder.device)

    def step(self, batch: Sequence[ParallelPair]) -> StepResult:
        """Add the gradients of a batch's loss to the module's, and put its sources into the queue."""
        gather, queue = self._gather, self.queue
        device = self._encoder.device
        targets, target_places = _merged([row.target for row in batch], device)
        sources, source_places = _merged([row.source for row in batch], device)
        keys = self._joined(torch.tensor([text_key(row.source) for row in batch], device=device))
        temperature = self.module.temperature()
        if gather is not None:
            temperature = gather.share(temperature)
        metrics = {"temperature": temperature.item(), "queued": float(len(queue))}
        parts = [(self._encoder, targets)]
        positives = torch.empty(0)
        if isinstance(self._source, Encoder):
            parts.append((self._source, sources))
        else:
            positives = self._joined(self._source(sources).to(device)[source_places])

        def loss(own: Tensor) -> Tensor:
            nonlocal positives
            anchors = own[: len(targets)][target_places]
            anchors = anchors if gather is None else gather(anchors)
            if len(parts) == 2:
                positives = own[len(targets) :][source_places]
                positives = positives if gather is None else gather(positives)
            metrics.update(batch_geometry(anchors.detach(), positives.detach()))
            text_keys = (keys, keys, queue.keys) if self._settings.mask_duplicates else None

            def loss_of(width: int | None) -> Tensor:
                columns = (column[:, :width] for column in (anchors, positives, queue.vectors))
                return contrastive_loss(*columns, keys=text_keys, temperature=temperature)

            return mean_over_widths(self._settings.dims, loss_of)

        value, stats = learn_together(parts, loss, compute=self._compute, gather=gather)
        queue.push(positives.detach(), keys)
        return StepResult(value.item(), metrics | {"truncated": stats.num_truncated / stats.num_texts})

    def _joined(self, own: Tensor) -> Tensor:
        """Return the rows of all processes; nothing flows back."""
        return own if self._gather is None else torch.cat(self._gather.parts(own))


def _merged(texts: list[str], device: torch.device) -> tuple[list[str], Tensor]:
    """Return each different text once, and where each of `texts` stands among them."""
    merged, places = merge_equal(texts)
    return merged, torch.tensor(places, device=device)
