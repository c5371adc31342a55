"""A T5 encoder, and its decoder's first step, over packed tokens.

Over a dictionary of weights with transformers' names, so it needs no transformers: inference reads them from a file,
and training passes the live parameters of the transformers model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.forward.linear import (
    ACTIVATION_NAMES,
    ACTIVATIONS,
    Activation,
    Linear,
    MakeLinear,
    as_input,
    scale_rows,
)
from tercet.encoder.forward.pack import Pack, attend, dropout


@dataclass(frozen=True)
class T5Shape:
    """What a T5's configuration says about its computation."""

    width: int
    num_heads: int
    num_layers: int
    num_decoder_layers: int
    num_buckets: int
    max_distance: int
    eps: float
    activation: Activation
    gated: bool
    start_id: int
    dropout: float

    def without_dropout(self) -> "T5Shape":
        """Return the shape for a model that is not being trained."""
        return replace(self, dropout=0.0)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "T5Shape | None":
        """Read a configuration; None where it asks for something that is not built here."""
        gate, _, name = config.get("feed_forward_proj", "relu").rpartition("-")
        name = "gelu_new" if gate and name == "gelu" else name
        if gate not in ("", "gated") or name not in ACTIVATION_NAMES:
            return None
        return cls(
            width=config["d_model"],
            num_heads=config["num_heads"],
            num_layers=config["num_layers"],
            num_decoder_layers=config.get("num_decoder_layers") or config["num_layers"],
            num_buckets=config.get("relative_attention_num_buckets", 32),
            max_distance=config.get("relative_attention_max_distance", 128),
            eps=config.get("layer_norm_epsilon", 1e-6),
            activation=ACTIVATION_NAMES[name],
            gated=bool(gate),
            start_id=config.get("decoder_start_token_id") or 0,
            dropout=config.get("dropout_rate", 0.1),
        )


@dataclass(frozen=True)
class _FeedForward:
    up: Linear
    down: Linear


@dataclass(frozen=True)
class _Block:
    qkv: Linear
    out: Linear
    feed_forward: _FeedForward


@dataclass(frozen=True)
class _DecoderBlock:
    itself: Sequence[Linear]
    query: Linear
    key: Tensor
    value: Tensor
    out: Linear
    feed_forward: _FeedForward


class PackedT5:
    """A T5 that computes at one precision.

    Args:
        shape: Its shape.
        weights: Its weights by transformers' names.
        make: Makes the products; the weights of norms are folded into those that follow.
        training: Whether there is dropout, and gradients flow.
    """

    def __init__(
        self, shape: T5Shape, weights: Mapping[str, Tensor], make: MakeLinear, *, training: bool = False
    ) -> None:
        self.shape, self.weights, self.make, self.training = shape, weights, make, training
        self.drop = partial(dropout, p=shape.dropout, training=training)
        self.table = weights["shared.weight"].float()
        self.ones = None if training else torch.ones(shape.width)  # without a weight a norm takes four times as long
        self.blocks = [self._block(f"encoder.block.{i}.layer") for i in range(shape.num_layers)]
        self.final_norm = weights["encoder.final_layer_norm.weight"].float()
        self.biases: dict[tuple[int, int], Tensor] = {}

    def encode(self, pack: Pack, layers: tuple[int, ...] = (-1,)) -> Tensor:
        """Return the mean of some hidden states [num_tokens, width]: 0 is the embedding's output, -1 the last."""
        wanted = {layer % (len(self.blocks) + 1) for layer in layers}
        drop = self.drop if self.training else None
        x = self.drop(F.embedding(pack.ids, self.table))
        kept = [x.clone()] if 0 in wanted else []
        for i, block in enumerate(self.blocks):
            qkv, bias = block.qkv(self.norm(x, block.qkv)), partial(self.bias, i)
            heads = attend(qkv, pack, num_heads=self.shape.num_heads, scale=1.0, bias=bias, drop=drop)
            x = self.residual(block.out, heads, x)
            x = self.feed_forward(block.feed_forward, x)
            if i + 1 == len(self.blocks):
                x = self.drop(F.rms_norm(x, (self.shape.width,), self.final_norm, self.shape.eps))
            if i + 1 in wanted:
                kept.append(x.clone() if i + 1 < len(self.blocks) else x)
        return kept[0] if len(kept) == 1 else torch.stack(kept).mean(0)

    def norm(self, x: Tensor, to: Linear) -> Tensor:
        """Return rows of mean square 1 as a product takes them; the norm's weight is in that product."""
        return F.rms_norm(x, (self.shape.width,), self.ones if to.columns is None else to.columns, self.shape.eps)

    def residual(self, linear: Linear, x: Tensor, to: Tensor) -> Tensor:
        """Return `to` plus a product of x, with dropout in training."""
        return to + self.drop(linear(x)) if self.training else linear.add(x, to)

    def feed_forward(self, layer: _FeedForward, x: Tensor) -> Tensor:
        """Return x plus its feed-forward layer."""
        hidden = layer.up(self.norm(x, layer.up))
        if self.shape.gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = ACTIVATIONS[self.shape.activation](gate) * value
        else:
            hidden = as_input(layer.down, hidden)
        return self.residual(layer.down, self.drop(hidden), x)

    def make_feed_forward(self, prefix: str) -> _FeedForward:
        """Prepare the feed-forward layer of that name."""
        norm = self.weights[f"{prefix}.layer_norm.weight"]
        names = ("wo", "wi_0", "wi_1") if self.shape.gated else ("wo", "wi")
        out, *into = (self.weights[f"{prefix}.DenseReluDense.{name}.weight"] for name in names)
        down = self.make(out, name=f"{prefix}.wo")
        if self.shape.gated:
            gate, value = into
            up = self.make(torch.cat([gate, scale_rows(value, down)]) * norm, name=f"{prefix}.wi")
        else:
            up = self.make.between(into[0] * norm, None, self.shape.activation, name=f"{prefix}.wi", to=down)
        return _FeedForward(up, down)

    def bias(self, layer: int, length: int) -> Tensor:
        """Return what the distance of two tokens adds to their score: [1, num_heads, length, length]."""
        name = "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight"
        layer = layer if name.format(layer) in self.weights else 0  # all layers share the first one's, but in umT5
        if (layer, length) not in self.biases:
            position = torch.arange(length)
            buckets = distance_buckets(position - position[:, None], self.shape.num_buckets, self.shape.max_distance)
            bias = self.weights[name.format(layer)][buckets].permute(2, 0, 1).unsqueeze(0)
            self.biases[layer, length] = bias.to(self.make.dtype).contiguous()
        return self.biases[layer, length]

    def _block(self, prefix: str) -> _Block:
        attention, norm = f"{prefix}.0.SelfAttention", self.weights[f"{prefix}.0.layer_norm.weight"]
        query, key, value = (self.weights[f"{attention}.{name}.weight"] for name in "qkv")
        out = self.make(self.weights[f"{attention}.o.weight"], name=f"{attention}.o")
        qkv = self.make(torch.cat([query, key, scale_rows(value, out)]) * norm, name=f"{attention}.qkv")
        return _Block(qkv, out, self.make_feed_forward(f"{prefix}.1"))


class PackedT5WithDecoder(PackedT5):
    """A T5 with the first step of its decoder: `first_decoder_output`, over packed tokens.

    Without dropout the first layer up to its attention is the same for every text, and computed for one row only; and
    the two products of self-attention on one token are one.
    """

    def __init__(
        self, shape: T5Shape, weights: Mapping[str, Tensor], make: MakeLinear, *, training: bool = False
    ) -> None:
        super().__init__(shape, weights, make, training=training)
        self.decoder_blocks = [self._decoder_block(f"decoder.block.{i}.layer") for i in range(shape.num_decoder_layers)]
        self.decoder_norm = weights["decoder.final_layer_norm.weight"].float()

    def decode(self, encoded: Tensor, pack: Pack) -> Tensor:
        """Return the decoder's first output for each text [num_texts, width]."""
        num_texts = sum(num for num, _ in pack.groups)
        texts = encoded.to(self.make.dtype)
        x = self.drop(self.table[self.shape.start_id].expand(num_texts if self.training else 1, -1))
        for block in self.decoder_blocks:
            x = x + self._attend_to_itself(block.itself, x)
            query = block.query(self.norm(x, block.query)).unflatten(-1, (self.shape.num_heads, -1))
            query = torch.einsum("nhk,hkd->nhd", query.to(texts.dtype), block.key)
            context = torch.einsum("nhd,hkd->nhk", self._attend_to_text(query, texts, pack), block.value)
            x = self.residual(block.out, context.flatten(1), x if len(x) == num_texts else x.repeat(num_texts, 1))
            x = self.feed_forward(block.feed_forward, x)
        return self.drop(F.rms_norm(x, (self.shape.width,), self.decoder_norm, self.shape.eps))

    def _attend_to_itself(self, products: Sequence[Linear], x: Tensor) -> Tensor:
        if not self.training:
            return products[0](self.norm(x, products[0]))
        value, out = products
        heads = value(self.norm(x, value)).unflatten(-1, (self.shape.num_heads, -1))
        weights = self.drop(heads.new_ones(heads.shape[:2]))  # the softmax over one key, which dropout may drop
        return self.drop(out((weights[..., None] * heads).flatten(1)))

    def _attend_to_text(self, queries: Tensor, texts: Tensor, pack: Pack) -> Tensor:
        contexts, start = [], 0
        for part in pack.split(texts):
            query = queries if len(queries) == 1 else queries[start : start + len(part)]
            weights = (query @ part.transpose(1, 2)).softmax(-1)
            contexts.append(self.drop(weights) @ part)
            start += len(part)
        return torch.cat(contexts)

    def _decoder_block(self, prefix: str) -> "_DecoderBlock":
        own, cross = f"{prefix}.0.SelfAttention", f"{prefix}.1.EncDecAttention"
        norms = [self.weights[f"{prefix}.{i}.layer_norm.weight"] for i in (0, 1)]
        value, out = self.weights[f"{own}.v.weight"] * norms[0], self.weights[f"{own}.o.weight"]
        heads, make = (self.shape.num_heads, -1), partial(self.make, name="")
        return _DecoderBlock(
            itself=[make(value), make(out)] if self.training else [make(out.float() @ value.float())],
            query=make(self.weights[f"{cross}.q.weight"] * norms[1]),
            key=self.weights[f"{cross}.k.weight"].unflatten(0, heads).to(self.make.dtype),
            value=self.weights[f"{cross}.v.weight"].unflatten(0, heads).to(self.make.dtype),
            out=make(self.weights[f"{cross}.o.weight"]),
            feed_forward=self.make_feed_forward(f"{prefix}.2"),
        )


def distance_buckets(distance: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Return T5's bucket of each distance: half of them for each direction, near ones one each, far ones by log."""
    half = num_buckets // 2
    near = half // 2
    size = distance.abs()
    far = (size.clamp_min(1).float() / near).log() / math.log(max_distance / near) * (half - near)
    far = (near + far.long()).clamp_max(half - 1)
    return torch.where(size < near, size, far) + half * (distance > 0)
