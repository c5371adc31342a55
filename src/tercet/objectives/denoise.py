"""Denoising: a T5 fills the gaps that were made in texts (span corruption)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.batches import batches_by_length, pad
from tercet.objectives.batch import merge_equal
from tercet.objectives.gather import Gather
from tercet.rows.kinds import Row, texts_of
from tercet.training.loop import StepResult

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

_IGNORED = -100


class DenoiseSettings(BaseModel):
    """What can be chosen about span corruption and how it is computed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    noise_density: float = Field(default=0.15, gt=0, lt=1)
    """The share of a text's tokens that are taken out."""

    mean_span: float = Field(default=3.0, ge=1)
    """How many tokens a gap has on average."""

    max_tokens: int = Field(default=512, ge=3)
    """The most tokens of a text that are read, its end included."""

    max_batch_tokens: PositiveInt = 4096
    """The most tokens, padding included, that go through the model at once."""


class Denoise:
    """The denoising objective: the mean cross-entropy of all tokens that are to be written.

    Args:
        model: A T5 with its language-model head.
        tokenizer: Its tokenizer, which has sentinels.
        settings: What is taken out.
        dtype: What products are computed in; fp32 where None.
        gather: The exchange with the other processes; None where there are none.

    Attributes:
        module: Everything that is trained: the model.
    """

    def __init__(
        self,
        model: "T5ForConditionalGeneration",
        tokenizer: "PreTrainedTokenizerBase",
        settings: DenoiseSettings,
        *,
        dtype: torch.dtype | None = None,
        gather: Gather | None = None,
    ) -> None:
        self.module = model
        self._tokenizer, self._settings, self._dtype, self._gather = tokenizer, settings, dtype, gather
        self._sentinels = sentinel_ids(tokenizer)

    def step(self, batch: Sequence[Row]) -> StepResult:
        """Add the gradients of a batch's loss to the module's."""
        texts = [text for row in batch for text in texts_of(row)]
        merged, _ = merge_equal(texts, apart=[False] * len(texts))
        examples = [self._example(text) for text in merged]
        num_targets = self._total(torch.tensor(float(sum(len(target) for _, target in examples))))
        lengths = [len(source) + len(target) for source, target in examples]
        loss = torch.tensor(0.0)
        for rows in batches_by_length(lengths, max_batch_tokens=self._settings.max_batch_tokens):
            part = self._loss([examples[i] for i in rows]) / num_targets
            part.backward()
            loss += part.detach().cpu()
        return StepResult(self._total(loss).item(), {"num_targets": num_targets.item()})

    def _example(self, text: str) -> tuple[list[int], list[int]]:
        ids = self._tokenizer.encode(text, add_special_tokens=False)[: self._settings.max_tokens - 1]
        source, target = corrupt(
            ids,
            noise_density=self._settings.noise_density,
            mean_span=self._settings.mean_span,
            sentinels=self._sentinels,
        )
        end = self._tokenizer.eos_token_id
        return [*source, end], [*target, end]

    def _loss(self, examples: Sequence[tuple[list[int], list[int]]]) -> Tensor:
        device = self.module.device
        source, mask = pad([source for source, _ in examples], pad_id=self._tokenizer.pad_token_id or 0)
        labels, _ = pad([target for _, target in examples], pad_id=_IGNORED)
        labels = labels.to(device)
        given = self.module.prepare_decoder_input_ids_from_labels(labels)
        with torch.autocast(device.type, self._dtype or torch.bfloat16, enabled=self._dtype is not None):
            output = self.module(input_ids=source.to(device), attention_mask=mask.to(device), decoder_input_ids=given)
        return F.cross_entropy(
            output.logits.float().flatten(0, 1), labels.flatten(), ignore_index=_IGNORED, reduction="sum"
        )

    def _total(self, number: Tensor) -> Tensor:
        return number if self._gather is None else torch.cat(self._gather.parts(number[None])).sum()


def corrupt(
    ids: Sequence[int], *, noise_density: float, mean_span: float, sentinels: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Take spans out of a text as T5 does, and return what is left, and what was taken.

    Kept and taken spans take turns, a kept one first. In the first list a sentinel stands for each span that was taken;
    in the second it stands before it. Lengths are drawn with torch's random numbers.

    Args:
        ids: The tokens of a text.
        noise_density: The share that is taken, at least one token; of a text with one token or none, nothing is.
        mean_span: How many tokens a span has on average.
        sentinels: One for each span, in their order; no more spans are taken than there are sentinels.
    """
    if len(ids) < 2:
        return [*ids], []
    num_taken = min(max(round(len(ids) * noise_density), 1), len(ids) - 1)
    num_spans = min(max(round(num_taken / mean_span), 1), len(ids) - num_taken, len(sentinels))
    source: list[int] = []
    target: list[int] = []
    start = 0
    kept, taken = _parts(len(ids) - num_taken, num_spans), _parts(num_taken, num_spans)
    for sentinel, num_kept, num_gap in zip(sentinels, kept, taken, strict=False):
        gap = start + num_kept
        source += [*ids[start:gap], sentinel]
        target += [sentinel, *ids[gap : gap + num_gap]]
        start = gap + num_gap
    return source, target


def sentinel_ids(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the ids of `<extra_id_0>`, `<extra_id_1>` and so on, as far as a tokenizer has them."""
    vocabulary = tokenizer.get_vocab()
    names = (f"<extra_id_{i}>" for i in range(len(vocabulary)))
    ids: list[int] = []
    for name in names:
        if name not in vocabulary:
            return ids
        ids.append(vocabulary[name])
    return ids


def _parts(total: int, num: int) -> list[int]:
    """Cut a number into so many positive ones, all ways being as likely."""
    cuts = (torch.randperm(total - 1)[: num - 1] + 1).sort().values.tolist()
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
