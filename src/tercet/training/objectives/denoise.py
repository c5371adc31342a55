"""Denoising: a T5 fills the gaps that were made in texts (span corruption)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field

from tercet.data.rows.kinds import Row, texts_of
from tercet.encoder.model.templates import end_id
from tercet.errors import ModelError
from tercet.training.objectives.conditional import ConditionalGeneration, ConditionalSettings, Example
from tercet.training.objectives.gather import Gather

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration


class DenoiseSettings(ConditionalSettings):
    """What can be chosen about span corruption and how it is computed."""

    noise_density: float = Field(default=0.15, gt=0, lt=1)
    """The share of a text's tokens that are taken out."""

    mean_span: float = Field(default=3.0, ge=1)
    """How many tokens a gap has on average."""

    max_tokens: int = Field(default=512, ge=3)
    """The most tokens of a text that are read, its end included."""


class Denoise(ConditionalGeneration):
    """The denoising objective: what was taken out of a text is written.

    Args:
        model: A T5 with its language-model head.
        tokenizer: Its tokenizer, which has sentinels.
        settings: What is taken out.
        dtype: What products are computed in; fp32 where None.
        gather: The exchange with the other processes; None where there are none.

    Raises:
        ModelError: The tokenizer has no sentinels.
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
        super().__init__(model, max_batch_tokens=settings.max_batch_tokens, dtype=dtype, gather=gather)
        self._tokenizer, self._settings = tokenizer, settings
        self._sentinels = sentinel_ids(tokenizer)
        if not self._sentinels:
            raise ModelError("the tokenizer has no <extra_id_0>, so no gap can be marked. Take a tokenizer of T5.")

    def examples(self, batch: Sequence[Row]) -> list[Example]:
        """Return each text of each row, once, with gaps, and what was in them.

        Rows are not merged with one another: a text would count otherwise where they are in several processes.
        """
        return [self._example(text) for row in batch for text in dict.fromkeys(texts_of(row))]

    def _example(self, text: str) -> Example:
        ids = self._tokenizer.encode(text, add_special_tokens=False)[: self._settings.max_tokens - 1]
        source, target = corrupt(
            ids,
            noise_density=self._settings.noise_density,
            mean_span=self._settings.mean_span,
            sentinels=self._sentinels,
        )
        end = end_id(self._tokenizer)
        return Example([*source, end], [*target, end])


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
