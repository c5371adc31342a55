"""The discriminator: how likely a generator/discriminator says `true` of two sentences."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tercet.encoder.forward.batches import batches_by_length, pad
from tercet.encoder.forward.engine import AUTOCAST, BROKEN, PACKED, check_finite, evaluating
from tercet.encoder.forward.fitting import fit_bytes, sample_packs
from tercet.encoder.forward.int8 import Quantized
from tercet.encoder.forward.pack import Pack
from tercet.encoder.forward.t5 import PackedT5WithDecoder, T5Shape
from tercet.encoder.forward.vectors import packed_shape
from tercet.encoder.generator import head_scale
from tercet.encoder.model.onestep import first_decoder_output
from tercet.encoder.model.templates import TemplateTokens, label_ids
from tercet.encoder.model.tokens import bare_ids
from tercet.errors import NonFiniteError, SettingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, T5ForConditionalGeneration

FirstOutputs = Callable[[Sequence[Sequence[int]]], Tensor]
"""Token ids, texts of equal length side by side, to the decoder's first output of each text."""

_BATCH_TOKENS = 4096


class Discriminator:
    """The probability of `true`, of the two labels alone, at the decoder's first step.

    On a CPU the encoder is packed, the decoder takes one step without keys and values, and of the language-model head
    two rows are used. The weights are those that the model has now.

    Args:
        model: A generator/discriminator.
        tokenizer: Its tokenizer.
        precision: `exact`, `fast` or `int8`.
        max_tokens: The most that is read of each sentence.

    Raises:
        ModelError: The vocabulary has no `true` or no `false`.
        SettingError: There is no int8 for this model or device.
    """

    def __init__(
        self,
        model: "T5ForConditionalGeneration",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        precision: str,
        max_tokens: int,
    ) -> None:
        self._tokens = TemplateTokens(tokenizer, max_tokens=max_tokens)
        # rows are copied, so that a model that is not needed any more is not kept for them
        self._head = model.lm_head.weight.detach()[label_ids(tokenizer)].float() * head_scale(model.config)
        shape = packed_shape(model.config.to_dict(), dict(model.named_parameters()))
        self._padded = not isinstance(shape, T5Shape)
        if isinstance(shape, T5Shape):
            self._first_outputs = _packed(model, shape, precision, tokenize=partial(_whole_ids, tokenizer))
        elif precision in AUTOCAST:
            self._first_outputs = _transformers(model, AUTOCAST[precision])
        else:
            raise SettingError(f"precision {precision!r}: is for T5 models on a CPU. Take 'exact' or 'auto'.")

    def __call__(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float32]:
        """Return the probability of `true` for each pair.

        Raises:
            NonFiniteError: A score is not a number.
        """
        rows = self._tokens("discrimination", premises, hypotheses)
        lengths = [len(row) for row in rows]
        found = np.empty(len(rows), np.float32)
        with torch.inference_mode():
            for batch in batches_by_length(lengths, max_batch_tokens=_BATCH_TOKENS, padded=self._padded):
                outputs = self._first_outputs([rows[i] for i in batch])
                scores = outputs.float() @ self._head.T
                if not bool(scores.isfinite().all()):
                    raise NonFiniteError(f"a score of the discriminator is not finite. {BROKEN}")
                found[batch] = scores.softmax(1)[:, 0].cpu().numpy()
        return found


def _whole_ids(tokenizer: "PreTrainedTokenizerBase", texts: list[str]) -> list[list[int]]:
    return [[*ids, tokenizer.eos_token_id] for ids in bare_ids(tokenizer, texts)]


def _packed(
    model: "T5ForConditionalGeneration",
    shape: T5Shape,
    precision: str,
    *,
    tokenize: Callable[[list[str]], list[list[int]]],
) -> FirstOutputs:
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    check_finite(weights)
    make_model = partial(PackedT5WithDecoder, shape.without_dropout(), weights)

    def outputs(model: PackedT5WithDecoder, pack: Pack) -> Tensor:
        return model.decode(model.encode(pack), pack)

    if precision == "int8":
        with torch.inference_mode():
            packs = sample_packs(tokenize, len(weights["shared.weight"]))
            packed = make_model(Quantized(fit_bytes(make_model, outputs, packs)))
    else:
        packed = make_model(PACKED[precision])
    return lambda rows: outputs(packed, Pack.of(rows))


def _transformers(model: "T5ForConditionalGeneration", dtype: torch.dtype | None) -> FirstOutputs:
    device = model.device

    def first_outputs(rows: Sequence[Sequence[int]]) -> Tensor:
        ids, mask = (tensor.to(device) for tensor in pad(rows, pad_id=model.config.pad_token_id or 0))
        with evaluating(model), torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
            encoded = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            outputs = first_decoder_output(model, encoded, mask)  # type: ignore[arg-type]  # it has the same parts
        return outputs

    return first_outputs
