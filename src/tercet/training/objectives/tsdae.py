"""TSDAE: from the vector of what is left of a text, a decoder that sees nothing else writes the whole text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.data.rows.clean import split_words
from tercet.data.rows.kinds import Row, texts_of
from tercet.encoder.encoder import Encoder
from tercet.encoder.forward.batches import batches_by_length, pad
from tercet.encoder.forward.engine import AUTOCAST
from tercet.encoder.model.readouts import T5_FAMILY
from tercet.encoder.model.tokens import Tokens
from tercet.errors import SettingError
from tercet.storage.settings import Settings
from tercet.training.loop.loop import StepResult
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.gradient_cache import learn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_IGNORED = -100


class TsdaeSettings(Settings):
    """What can be chosen about the denoising auto-encoder."""

    deleted: float = Field(default=0.6, ge=0, lt=1)
    """The share of a text's words that the encoder does not see; one always stays."""

    tie_decoder: bool = True
    """Whether the decoder has the encoder's layers, but for its attention to the vector; else layers of its own, which
    start as those of the checkpoint's decoder, or of a BERT as a copy."""


class Tsdae:
    """The objective of TSDAE: the mean cross-entropy of the tokens of all texts.

    Args:
        encoder: What is trained.
        decoder: What `language_model` makes of it.
        settings: What is deleted.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none. With it, the gradients of a step are
            those of the whole batch once they are summed over the processes.

    Attributes:
        module: Everything that is trained: the tower and the decoder. What they share is there once.

    Raises:
        SettingError: The encoder's vectors have another width than its layers, which the decoder reads.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: "PreTrainedModel",
        settings: TsdaeSettings,
        *,
        compute: ComputeSettings,
        gather: Gather | None = None,
    ) -> None:
        width, in_width = encoder.head.training_width, encoder.head.in_width
        if width != in_width:
            raise SettingError(
                f"vectors have {width} numbers, and the decoder reads {in_width}. Set encoder.projection: null."
            )
        self._encoder, self._decoder, self._settings = encoder, decoder, settings
        self._compute, self._gather = compute, gather
        tokens = encoder.tokens
        max_tokens = tokens.cut_to(compute.max_tokens).max_tokens
        self._whole = Tokens(tokens.tokenizer, max_tokens=max_tokens, lowercase=tokens.lowercase)  # without a prompt
        self.module = nn.ModuleDict({"tower": encoder.tower, "decoder": decoder})

    def step(self, batch: Sequence[Row]) -> StepResult:
        """Add the gradients of a batch's loss to the module's."""
        texts = [text for row in batch for text in dict.fromkeys(texts_of(row))]
        ids, truncated = self._whole(texts)
        targets = [self._target(row) for row in ids]
        num_targets = self._total(torch.tensor(float(sum(len(wanted) for _, wanted in targets))))

        def loss(vectors: Tensor) -> Tensor:
            return self._rebuild(vectors, targets, weight=1 / num_targets.item())

        seen = [delete_words(text, self._settings.deleted) for text in texts]
        value, _ = learn(self._encoder, seen, loss, compute=self._compute, gather=self._gather)
        metrics = {"num_targets": num_targets.item(), "truncated": sum(truncated) / len(texts)}
        return StepResult(self._total(value).item(), metrics)

    def _target(self, ids: list[int]) -> tuple[list[int], list[int]]:
        """Return what the decoder is given of a text, and what it is to write: at each place, what comes next."""
        return ([self._decoder.config.decoder_start_token_id, *ids[:-1]], ids) if self._is_t5 else (ids[:-1], ids[1:])

    def _rebuild(self, vectors: Tensor, targets: Sequence[tuple[list[int], list[int]]], *, weight: float) -> Tensor:
        """Return the sum of the cross-entropies, times a weight.

        The decoder gets its gradients here, a part of the texts at a time, so that few scores of words are in memory.
        What is returned gives the vectors theirs.
        """
        gradient, total = torch.zeros_like(vectors), vectors.new_zeros(())
        lengths = [len(wanted) for _, wanted in targets]
        for rows in batches_by_length(lengths, max_batch_tokens=self._compute.word_tokens(self._encoder.tower)):
            part = vectors[rows].detach().requires_grad_()
            value = weight * self._cross_entropy(part, [targets[i] for i in rows])
            value.backward()
            gradient[rows], total = cast(Tensor, part.grad), total + value.detach()
        return total + ((vectors - vectors.detach()) * gradient).sum()

    def _cross_entropy(self, vectors: Tensor, targets: Sequence[tuple[list[int], list[int]]]) -> Tensor:
        """Return the sum of the cross-entropies of all tokens that are to be written, each from a vector alone."""
        decoder, device = self._decoder, self._encoder.device
        given, mask = pad([given for given, _ in targets], pad_id=self._encoder.tokens.pad_id)
        wanted, _ = pad([wanted for _, wanted in targets], pad_id=_IGNORED)
        text = vectors[:, None]  # all that there is to attend to
        if self._is_t5:
            inputs: dict[str, Any] = {"encoder_outputs": (text,), "decoder_input_ids": given.to(device)}
        else:
            inputs = {"encoder_hidden_states": text, "input_ids": given.to(device), "attention_mask": mask.to(device)}
        dtype = AUTOCAST[self._encoder.resolve_precision(self._compute.precision)]
        with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
            scores = decoder(**inputs).logits.float()
        return F.cross_entropy(
            scores.flatten(0, 1), wanted.to(device).flatten(), ignore_index=_IGNORED, reduction="sum"
        )

    @property
    def _is_t5(self) -> bool:
        return self._decoder.config.model_type in T5_FAMILY

    def _total(self, number: Tensor) -> Tensor:
        """Return the sum of a number over the processes."""
        return number if self._gather is None else self._gather.total(number, device=self._encoder.device)


def delete_words(text: str, share: float) -> str:
    """Return a text without some of its words: each is deleted with this probability, but one stays in any case."""
    words = split_words(text)
    if not words:
        return text
    kept = torch.rand(len(words)) >= share
    kept[torch.randint(len(words), ())] |= not kept.any()
    return "".join(word for word, stays in zip(words, kept.tolist(), strict=True) if stays).strip()
