"""The T5 decoder for one start token, without keys or values for the encoder's tokens.

With one token, decoder self-attention is `x Wv Wo`: a softmax over one key is 1. Cross-attention scores are
`(x Wq) (H Wk)^T = (x Wq Wk^T) H^T`, and the weights can be applied to `H` before `Wv`. So the decoder works on one row
a text, and its only token-sized operations are two products with `H` itself.
"""

from collections.abc import Iterable
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from transformers import T5Model

ENTRY = "first_step"
"""The method of a decoder block that computes its step, where `add_entries` has given it one."""


def first_decoder_output(model: "T5Model", encoded: Tensor, mask: Tensor) -> Tensor:
    """Return the decoder's final hidden state for the start token: [n, d_model].

    Args:
        model: A T5, mT5 or umT5 encoder-decoder.
        encoded: The encoder's output [n, num_tokens, d_model].
        mask: 1 for real tokens, 0 for padding [n, num_tokens].
    """
    decoder: Any = model.decoder
    start = torch.full((encoded.shape[0],), model.config.decoder_start_token_id, device=encoded.device)
    x = decoder.dropout(decoder.embed_tokens(start))
    padding = (mask == 0)[:, None, :]
    for block in decoder.block:
        x = getattr(block, ENTRY, partial(_first_step, block))(x, encoded, padding)
    hidden: Tensor = decoder.dropout(decoder.final_layer_norm(x))
    return hidden


def add_entries(blocks: Iterable[nn.Module]) -> None:
    """Give decoder blocks a method for their step, so that FSDP can gather the weights of one block at a time."""
    for block in blocks:
        setattr(block, ENTRY, MethodType(_first_step, block))


def _first_step(block: Any, x: Tensor, encoded: Tensor, padding: Tensor) -> Tensor:
    self_attention, cross_attention, feed_forward = block.layer
    x = x + self_attention.dropout(_attend_to_itself(self_attention, x))
    x = x + cross_attention.dropout(_attend_to_text(cross_attention, x, encoded, padding))
    output: Tensor = feed_forward(x)
    return output


def _attend_to_itself(layer: Any, x: Tensor) -> Tensor:
    attention = layer.SelfAttention
    value = attention.v(layer.layer_norm(x)).unflatten(-1, (attention.n_heads, -1))
    weight = value.new_ones(value.shape[:2])  # the softmax over one key; in training, dropout may still drop it
    weight = F.dropout(weight, attention.dropout, training=attention.training)
    output: Tensor = attention.o((weight[..., None] * value).flatten(1))
    return output


def _attend_to_text(layer: Any, x: Tensor, encoded: Tensor, padding: Tensor) -> Tensor:
    attention = layer.EncDecAttention
    heads = (attention.n_heads, -1)
    query = attention.q(layer.layer_norm(x)).unflatten(-1, heads)
    query = torch.einsum("nhk,hkd->nhd", query, attention.k.weight.unflatten(0, heads))
    scores = torch.matmul(query, encoded.transpose(1, 2)).masked_fill(padding, -torch.inf)
    weights = F.dropout(scores.softmax(-1), attention.dropout, training=attention.training)
    context = torch.matmul(weights.to(encoded.dtype), encoded)
    context = torch.einsum("nhd,hkd->nhk", context, attention.v.weight.unflatten(0, heads))
    output: Tensor = attention.o(context.flatten(1))
    return output
