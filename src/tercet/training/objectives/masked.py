"""Masked words: beside another objective, a BERT guesses words that are hidden from it, as in SimCSE's code."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field, PositiveFloat
from torch.nn import functional as F

from tercet.encoder.encoder import Encoder
from tercet.encoder.forward.batches import batches_by_length, pad
from tercet.encoder.forward.engine import AUTOCAST
from tercet.storage.settings import Settings
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.gather import Gather

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class MaskedSettings(Settings):
    """What can be chosen about masked words."""

    mlm_weight: PositiveFloat | None = Field(default=None, exclude_if=lambda weight: weight is None)
    """How much the loss of masked words counts beside the objective (SimCSE: 0.1), for a BERT; null for none."""

    mlm_probability: float = Field(default=0.15, gt=0, lt=1, exclude_if=lambda share: share == 0.15)
    """The share of tokens that are to be guessed: 8 of 10 are masked, 1 is another word, 1 stays."""


class MaskedWords:
    """The loss of masked words, over all texts of a batch.

    Args:
        encoder: What is trained.
        model: What `language_model` makes of it for masked words.
        settings: What is masked, and how much it counts.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none.
    """

    def __init__(
        self,
        encoder: Encoder,
        model: "PreTrainedModel",
        settings: MaskedSettings,
        *,
        compute: ComputeSettings,
        gather: Gather | None = None,
    ) -> None:
        from transformers import DataCollatorForLanguageModeling

        self._encoder, self._compute, self._gather = encoder, compute, gather
        self.module, self._weight = model, settings.mlm_weight or 0.0
        self._masking = DataCollatorForLanguageModeling(
            encoder.tokens.tokenizer, mlm_probability=settings.mlm_probability
        )

    def learn(self, texts: Sequence[str]) -> float:
        """Add the weighted gradients of the mean cross-entropy of hidden words, and return this mean."""
        tokens, device = self._encoder.tokens, self._encoder.device
        rows = tokens.cut_to(self._compute.max_tokens)(texts)[0]
        special = torch.tensor(tokens.tokenizer.all_special_ids)
        parts = []
        max_tokens = self._compute.word_tokens(self._encoder.tower)
        for numbers in batches_by_length([len(row) for row in rows], max_batch_tokens=max_tokens):
            ids, mask = pad([rows[i] for i in numbers], pad_id=tokens.pad_id)
            given, wanted = self._masking.torch_mask_tokens(ids, special_tokens_mask=torch.isin(ids, special))
            parts.append((given.to(device), mask.to(device), wanted.to(device)))
        num = self._total(torch.tensor(float(sum(int((wanted >= 0).sum()) for *_, wanted in parts)))).item()
        dtype = AUTOCAST[self._encoder.resolve_precision(self._compute.precision)]
        total = torch.tensor(0.0)
        for given, mask, wanted in parts:
            with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
                scores = self.module(input_ids=given, attention_mask=mask).logits.float()
            loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction="sum") / max(num, 1.0)
            (self._weight * loss).backward()
            total += loss.detach().cpu()
        return self._total(total).item()

    def _total(self, number: torch.Tensor) -> torch.Tensor:
        """Return the sum of a number over the processes."""
        return number if self._gather is None else self._gather.total(number, device=self._encoder.device)
