"""Conditional generation: a T5 reads a source and learns to write a target."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.forward.batches import batches_by_length, pad
from tercet.encoder.forward.memory import trained_tokens_at_once
from tercet.encoder.forward.t5 import T5Shape
from tercet.encoder.forward.vectors import encode_rows, packed_shape
from tercet.storage.settings import Settings
from tercet.training.loop.loop import StepResult
from tercet.training.objectives.gather import Gather

if TYPE_CHECKING:
    from transformers import T5ForConditionalGeneration

_IGNORED = -100
_LABEL_TOKENS = 2  # one word and the end


class ConditionalSettings(Settings):
    """What can be chosen about how a batch is computed."""

    usual_batch_tokens: ClassVar[int] = 4096

    max_batch_tokens: PositiveInt | None = None
    """The most tokens, padding included, that go through the model at once; 4,096 on a CPU where null, and what its
    memory holds on a GPU."""


class Example(NamedTuple):
    """The token ids that are read, and those that are to be written."""

    source: list[int]
    target: list[int]


class ConditionalGeneration(ABC):
    """The mean cross-entropy of all tokens that are to be written; a kind says what those are.

    Args:
        model: A T5 with its language-model head.
        max_batch_tokens: The most tokens that go through it at once; what its memory holds where None.
        weigh_alike: Whether it is the mean over examples of the mean of each, so that a long one counts no more.
        label_weight: How many times as much a target of one word counts.
        dtype: What products are computed in; fp32 where None.
        gather: The exchange with the other processes; None where there are none.

    Attributes:
        module: Everything that is trained: the model.
    """

    def __init__(
        self,
        model: "T5ForConditionalGeneration",
        *,
        max_batch_tokens: int | None,
        weigh_alike: bool = False,
        label_weight: float = 1.0,
        dtype: torch.dtype | None = None,
        gather: Gather | None = None,
    ) -> None:
        self.module = model
        self._max_batch_tokens, self._dtype, self._gather = max_batch_tokens, dtype, gather
        self._weigh_alike, self._label_weight = weigh_alike, label_weight

    @abstractmethod
    def examples(self, batch: Sequence[Any]) -> list[Example]:
        """Return what is read and written of a batch of rows."""

    def step(self, batch: Sequence[Any]) -> StepResult:
        """Add the gradients of a batch's loss to the module's."""
        examples = self.examples(batch)
        num_targets = self._total(torch.tensor(float(sum(len(target) for _, target in examples))))
        weight = self._total(torch.tensor(float(len(examples)))) if self._weigh_alike else num_targets
        loss = torch.tensor(0.0)
        for part in self._parts(examples):
            part_loss = self._loss(part, weigh_alike=self._weigh_alike) / weight
            if _is_label(part[0]):
                part_loss = part_loss * self._label_weight
            part_loss.backward()
            loss += part_loss.detach().cpu()
        return StepResult(self._total(loss).item(), {"num_targets": num_targets.item()})

    @torch.no_grad()
    def mean_loss(self, examples: Sequence[Example]) -> float:
        """Return the mean cross-entropy of all tokens of examples, computed without dropout."""
        was_training = self.module.training
        self.module.eval()
        total = sum(float(self._loss(part)) for part in self._parts(examples))
        self.module.train(was_training)
        return total / sum(len(target) for _, target in examples)

    def _parts(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        """Yield the examples, those of similar length together: beside a sentence, a label would be mostly padding."""
        labels = [example for example in examples if _is_label(example)]
        sentences = [example for example in examples if not _is_label(example)]
        for alike in (labels, sentences):
            lengths = [len(source) + len(target) for source, target in alike]
            for rows in batches_by_length(lengths, max_batch_tokens=self._batch_tokens()):
                yield [alike[i] for i in rows]

    def _batch_tokens(self) -> int:
        if self._max_batch_tokens is not None:
            return self._max_batch_tokens
        num_weights = sum(parameter.numel() for parameter in self.module.parameters())
        usual, config = ConditionalSettings.usual_batch_tokens, self.module.config.to_dict()
        return trained_tokens_at_once(config, num_weights, self.module.device, usual=usual)

    def _loss(self, examples: Sequence[Example], *, weigh_alike: bool = False) -> Tensor:
        device = self.module.device
        labels, _ = pad([target for _, target in examples], pad_id=_IGNORED)
        labels = labels.to(device)
        given = self.module.prepare_decoder_input_ids_from_labels(labels)
        with torch.autocast(device.type, self._dtype or torch.bfloat16, enabled=self._dtype is not None):
            output = self.module(**self._encode([source for source, _ in examples]), decoder_input_ids=given)
        losses = F.cross_entropy(
            output.logits.float().flatten(0, 1), labels.flatten(), ignore_index=_IGNORED, reduction="none"
        ).view_as(labels)
        return (losses.sum(1) / (labels != _IGNORED).sum(1)).sum() if weigh_alike else losses.sum()

    def _encode(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return what the decoder is told of sources: what the encoder makes of them; on a CPU, packed."""
        ids, mask = (t.to(self.module.device) for t in pad(sources, pad_id=self.module.config.pad_token_id or 0))
        weights = dict(self.module.named_parameters())
        shape = packed_shape(self.module.config.to_dict(), weights)
        if isinstance(shape, T5Shape):
            shape = shape if self.module.training else shape.without_dropout()
            with torch.autocast(self.module.device.type, enabled=False):
                encoded = encode_rows(shape, weights, sources, dtype=self._dtype)
        else:
            encoded = self.module.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return {"encoder_outputs": (encoded,), "attention_mask": mask}

    def _total(self, number: Tensor) -> Tensor:
        """Return the sum of a number over the processes."""
        return number if self._gather is None else self._gather.total(number, device=self.module.device)


def _is_label(example: Example) -> bool:
    return len(example.target) <= _LABEL_TOKENS
