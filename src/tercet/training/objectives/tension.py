"""Contrastive tension (CT): two encoders that start as one agree about a text, and disagree about different ones."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.data.rows.kinds import Row, texts_of
from tercet.encoder.encoder import Encoder
from tercet.storage.settings import Settings
from tercet.training.loop.loop import StepResult
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.gradient_cache import learn_together


class TensionSettings(Settings):
    """What can be chosen about contrastive tension."""

    negatives: int = Field(default=7, ge=1)
    """How many of the batch's other texts are held against a text. A batch is groups of one more: the first text of a
    group is paired with itself and with each of the others."""


class Tension:
    """The objective of CT: the binary cross-entropy of dot products, summed over all pairs of a batch.

    Args:
        encoder: What is trained and kept; it reads every text of a batch.
        other: What is trained beside it, from the same weights; it reads the first text of each group.
        settings: How many negatives there are.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none. Each has groups of its own.

    Attributes:
        module: Both towers.
    """

    def __init__(
        self,
        encoder: Encoder,
        other: Encoder,
        settings: TensionSettings,
        *,
        compute: ComputeSettings,
        gather: Gather | None = None,
    ) -> None:
        self._encoder, self._other, self._size = encoder, other, 1 + settings.negatives
        self._compute, self._gather = compute, gather
        self.module = nn.ModuleDict({"tower": encoder.tower, "other": other.tower})

    def step(self, batch: Sequence[Row]) -> StepResult:
        """Add the gradients of a batch's loss to the module's."""
        texts = [texts_of(row)[0] for row in batch]
        firsts = texts[:: self._size]
        same = [text == firsts[i // self._size] for i, text in enumerate(texts)]
        labels = torch.tensor(same, dtype=torch.float32, device=self._encoder.device)

        def loss(vectors: Tensor) -> Tensor:
            own, others = vectors.split([len(texts), len(firsts)])
            scores = (own * others[torch.arange(len(texts)) // self._size]).sum(1)
            return F.binary_cross_entropy_with_logits(scores, labels, reduction="sum")

        parts = [(self._encoder, texts), (self._other, firsts)]
        value, stats = learn_together(parts, loss, compute=self._compute, gather=self._gather)
        if self._gather is not None:
            value = self._gather.total(value, device=self._encoder.device)
        return StepResult(value.item(), {"truncated": stats.num_truncated / stats.num_texts})
