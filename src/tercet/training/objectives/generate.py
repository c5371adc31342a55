"""Generation and discrimination: one T5 writes what a sentence entails or contradicts, and tells the two apart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field

from tercet.data.rows.kinds import TITLE, NliPair, Text, Triplet, as_triplet
from tercet.encoder.model.templates import LABELS, TemplateTokens, label_ids, target_ids
from tercet.training.objectives.conditional import ConditionalGeneration, ConditionalSettings, Example
from tercet.training.objectives.gather import Gather

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

InferenceRow = Text | Triplet | NliPair
"""A row that says what a sentence entails or contradicts, or a text's title; a text alone entails itself."""


class GenerateSettings(ConditionalSettings):
    """What can be chosen about the instances."""

    max_sentence_tokens: int = Field(default=96, ge=1)
    """The most tokens that are read of each sentence; the template is always whole."""

    max_target_tokens: int = Field(default=48, ge=2)
    """The most tokens of a sentence that is to be written, its end included."""

    weigh_alike: bool = Field(default=False, exclude_if=lambda alike: not alike)
    """Whether every instance counts alike; else every token does, and a label has fewer than a sentence."""

    label_weight: float = Field(default=1.0, gt=0, exclude_if=lambda weight: weight == 1)
    """How many times as much discrimination counts."""


class GenerateDiscriminate(ConditionalGeneration):
    """The objective of a generator/discriminator.

    Each pair of sentences gives two instances: write the second, and write whether the first means it. So a triplet
    gives four, and every batch has as many instances of the one task as of the other. A title is only written.

    Args:
        model: A T5 with its language-model head.
        tokenizer: Its tokenizer.
        settings: How much of a sentence is read and written.
        dtype: What products are computed in; fp32 where None.
        gather: The exchange with the other processes; None where there are none.
    """

    def __init__(
        self,
        model: "T5ForConditionalGeneration",
        tokenizer: "PreTrainedTokenizerBase",
        settings: GenerateSettings,
        *,
        dtype: torch.dtype | None = None,
        gather: Gather | None = None,
    ) -> None:
        super().__init__(
            model,
            max_batch_tokens=settings.max_batch_tokens,
            weigh_alike=settings.weigh_alike,
            label_weight=settings.label_weight,
            dtype=dtype,
            gather=gather,
        )
        label_ids(tokenizer)  # without them, all training would be for nothing
        self._tokenizer, self._max_target_tokens = tokenizer, settings.max_target_tokens
        self._tokens = TemplateTokens(tokenizer, max_tokens=settings.max_sentence_tokens)

    def examples(self, batch: Sequence[InferenceRow]) -> list[Example]:
        """Return all instances of the rows: those of generation, then those of discrimination."""
        pairs = [pair for row in batch for pair in pairs_of(row)]
        return [*self.generation(pairs), *self.discrimination([pair for pair in pairs if pair.label != TITLE])]

    def generation(self, pairs: Sequence[NliPair]) -> list[Example]:
        """Return the instances that write the hypothesis of each pair."""
        sources = [self._tokens(pair.label, [pair.premise])[0] for pair in pairs]
        return self._with_targets(sources, [pair.hypothesis for pair in pairs])

    def discrimination(self, pairs: Sequence[NliPair]) -> list[Example]:
        """Return the instances that write `true` or `false` of each pair."""
        sources = self._tokens("discrimination", [pair.premise for pair in pairs], [pair.hypothesis for pair in pairs])
        true, false = LABELS
        return self._with_targets(sources, [true if pair.label == "entailment" else false for pair in pairs])

    def _with_targets(self, sources: list[list[int]], texts: list[str]) -> list[Example]:
        targets = target_ids(self._tokenizer, texts, max_tokens=self._max_target_tokens)
        return [Example(*ids) for ids in zip(sources, targets, strict=True)]


def pairs_of(row: InferenceRow) -> list[NliPair]:
    """Return a row as NLI pairs: a text entails itself, an anchor its positive, and it contradicts its negatives."""
    if isinstance(row, NliPair):
        return [row]
    row = as_triplet(row)
    contradicted = [NliPair(row.anchor, negative, "contradiction") for negative in row.negatives]
    return [NliPair(row.anchor, row.positive, "entailment"), *contradicted]
