"""A BERT or RoBERTa encoder over packed tokens, over a dictionary of weights with transformers' names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.forward.linear import ACTIVATION_NAMES, Activation, Linear, MakeLinear, as_input, scale_rows
from tercet.encoder.forward.pack import Pack, attend, dropout


@dataclass(frozen=True)
class BertShape:
    """What a BERT's configuration says about its computation."""

    num_heads: int
    num_layers: int
    eps: float
    activation: Activation
    pad_id: int | None
    """RoBERTa counts positions after this id, and leaves it out; None for BERT, which counts from 0."""

    dropout: float
    attention_dropout: float

    def without_dropout(self) -> "BertShape":
        """Return the shape for a model that is not being trained."""
        return replace(self, dropout=0.0, attention_dropout=0.0)

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "BertShape | None":
        """Read a configuration; None where it asks for something that is not built here."""
        unusual = config.get("is_decoder") or config.get("position_embedding_type", "absolute") != "absolute"
        activation = ACTIVATION_NAMES.get(config.get("hidden_act", "gelu"))
        if unusual or activation is None:
            return None
        return cls(
            num_heads=config["num_attention_heads"],
            num_layers=config["num_hidden_layers"],
            eps=config.get("layer_norm_eps", 1e-12),
            activation=activation,
            pad_id=None if config["model_type"] == "bert" else config.get("pad_token_id", 1),
            dropout=config.get("hidden_dropout_prob", 0.1),
            attention_dropout=config.get("attention_probs_dropout_prob", 0.1),
        )


@dataclass(frozen=True)
class _Block:
    qkv: Linear
    out: Linear
    up: Linear
    down: Linear
    norms: tuple["_Norm", "_Norm"]


class _Norm:
    def __init__(self, weights: Mapping[str, Tensor], prefix: str, eps: float) -> None:
        self.weight, self.bias = weights[f"{prefix}.weight"].float(), weights[f"{prefix}.bias"].float()
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class PackedBert:
    """A BERT or RoBERTa that computes at one precision.

    Args:
        shape: Its shape.
        weights: Its weights by transformers' names.
        make: Makes the products.
        training: Whether there is dropout, and gradients flow.
    """

    def __init__(
        self, shape: BertShape, weights: Mapping[str, Tensor], make: MakeLinear, *, training: bool = False
    ) -> None:
        self.shape, self.weights, self.make, self.training = shape, weights, make, training
        self.drop = partial(dropout, p=shape.dropout, training=training)
        self.embedding_norm = _Norm(weights, "embeddings.LayerNorm", shape.eps)
        self.table = weights["embeddings.word_embeddings.weight"].float()
        self.positions = weights["embeddings.position_embeddings.weight"].float()
        self.kind = weights["embeddings.token_type_embeddings.weight"][0].float()
        self.blocks = [self._block(f"encoder.layer.{i}") for i in range(shape.num_layers)]

    def encode(self, pack: Pack, layers: tuple[int, ...] = (-1,)) -> Tensor:
        """Return the mean of some hidden states [num_tokens, width]: 0 is the embedding's output, -1 the last."""
        wanted = {layer % (len(self.blocks) + 1) for layer in layers}
        x = self._embed(pack)
        kept = [x] if 0 in wanted else []
        for i, block in enumerate(self.blocks, start=1):
            x = self._attend(block, x, pack, reuse=i - 1 not in wanted)
            x = self._feed_forward(block, x, reuse=True)
            if i in wanted:
                kept.append(x)
        return kept[0] if len(kept) == 1 else torch.stack(kept).mean(0)

    def states(self, pack: Pack) -> Iterator[Tensor]:
        """Yield what there is after the embedding, and then after each layer's attention and after each layer."""
        yield (x := self._embed(pack))
        for block in self.blocks:
            yield (x := self._attend(block, x, pack, reuse=False))
            yield (x := self._feed_forward(block, x, reuse=False))

    def _embed(self, pack: Pack) -> Tensor:
        x = F.embedding(pack.ids, self.table) + self.kind + self.positions[self._places(pack)]
        return self.drop(self.embedding_norm(x))

    def _attend(self, block: _Block, x: Tensor, pack: Pack, *, reuse: bool) -> Tensor:
        drop = partial(dropout, p=self.shape.attention_dropout, training=True) if self.training else None
        heads = attend(
            block.qkv(as_input(block.qkv, x)), pack, num_heads=self.shape.num_heads, scale=1.0, bias=None, drop=drop
        )
        return block.norms[0](self._residual(block.out, heads, x, reuse=reuse))

    def _feed_forward(self, block: _Block, x: Tensor, *, reuse: bool) -> Tensor:
        hidden = as_input(block.down, block.up(as_input(block.up, x)))
        return block.norms[1](self._residual(block.down, hidden, x, reuse=reuse))

    def _residual(self, linear: Linear, x: Tensor, to: Tensor, *, reuse: bool) -> Tensor:
        if self.training:
            return to + self.drop(linear(x))
        return linear.add(x, to if reuse else to.clone())

    def _places(self, pack: Pack) -> Tensor:
        """Return the position of each token within its text, as the model counts it."""
        if self.shape.pad_id is None:
            return torch.cat([torch.arange(length).repeat(num) for num, length in pack.groups])
        real = [part != self.shape.pad_id for part in pack.split(pack.ids)]
        return torch.cat([(part.cumsum(1) * part).flatten() for part in real]) + self.shape.pad_id

    def _block(self, prefix: str) -> _Block:
        weights, attention, output = self.weights, f"{prefix}.attention", f"{prefix}.output"
        out = self._linear(f"{attention}.output.dense")
        parts = [self._weight(f"{attention}.self.{name}") for name in ("query", "key", "value")]
        # the scores' scale goes into the queries
        scale = (len(parts[0][0]) // self.shape.num_heads) ** -0.5
        parts[0] = (parts[0][0] * scale, parts[0][1] * scale)
        parts[2] = (scale_rows(parts[2][0], out), scale_rows(parts[2][1], out))
        weight, bias = (torch.cat(side) for side in zip(*parts, strict=True))
        down, up = self._linear(f"{output}.dense"), f"{prefix}.intermediate.dense"
        return _Block(
            qkv=self.make(weight, bias, name=f"{attention}.self"),
            out=out,
            up=self.make.between(*self._weight(up), self.shape.activation, name=up, to=down),
            down=down,
            norms=(
                _Norm(weights, f"{attention}.output.LayerNorm", self.shape.eps),
                _Norm(weights, f"{output}.LayerNorm", self.shape.eps),
            ),
        )

    def _linear(self, name: str) -> Linear:
        return self.make(*self._weight(name), name=name)

    def _weight(self, name: str) -> tuple[Tensor, Tensor]:
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
