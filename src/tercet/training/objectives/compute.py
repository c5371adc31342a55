"""How a batch is computed: in which precision, in which pieces, and how much of it is kept in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt

from tercet.encoder.forward.batches import batches_by_length
from tercet.encoder.model.readouts import T5_FAMILY
from tercet.encoder.model.tower import Tower
from tercet.storage.settings import Settings
from tercet.training.objectives.gather import Gather


class ComputeSettings(Settings):
    """What can be chosen about computing a batch. Gradients are the same in any number of pieces, dropout aside."""

    precision: Literal["exact", "fast", "auto"] = "exact"
    """`exact` (fp32), `fast` (products in bf16; weights, their gradients and the residual stream in fp32), or `auto`
    (`fast` where the machine has bf16)."""

    max_tokens: PositiveInt | None = Field(default=None, exclude_if=lambda num: num is None)
    """The most tokens of a text that are read in training, prompt and special tokens included; as many as the encoder
    reads where null. The encoder that comes out reads as much as before."""

    max_batch_tokens: PositiveInt = 2048
    """The most tokens that go through the model at once; less where `max_activation_gb` demands it."""

    max_activation_gb: PositiveFloat = 2.0
    """How much of a batch's activations may be in memory at a time, by estimate. What exceeds it is computed twice."""


@dataclass(frozen=True)
class Piece:
    """A part of a batch that goes through the model at once."""

    rows: list[int]
    """Which rows of the batch."""

    kept: bool
    """Whether its activations stay in memory for the backward pass; else the forward pass is repeated there."""

    idle: bool = False
    """Whether it is computed for nothing, while other processes have more to do."""


def cut(lengths: Sequence[int], tower: Tower, *, compute: ComputeSettings) -> list[Piece]:
    """Cut a batch into pieces of similar length, and keep the last ones as far as the memory goes.

    The last pieces are the first to go through the backward pass. So their memory is free again when the first
    activations are computed for the second time.
    """
    budget = compute.max_activation_gb * 1e9
    max_tokens = min(compute.max_batch_tokens, int(budget / _token_bytes(tower, max(lengths))))
    pieces: list[Piece] = []
    for rows in reversed(list(batches_by_length(lengths, max_batch_tokens=max(max_tokens, 1)))):
        budget -= activation_bytes(tower, num_rows=len(rows), length=lengths[rows[0]])
        pieces.append(Piece(rows, kept=budget >= 0))
    return pieces[::-1]


def in_step(pieces: list[Piece], gather: Gather, *, device: torch.device) -> list[Piece]:
    """Return as many pieces as the other processes have, and as many kept ones: the first ones are not.

    Where weights are divided among the processes, all of them have to be there whenever a layer is computed.
    """
    own = torch.tensor([[len(pieces), sum(not piece.kept for piece in pieces)]], device=device)
    num, num_dropped = torch.cat(gather.parts(own)).amax(0).tolist()
    idle = [Piece(pieces[-1].rows[-1:], kept=True, idle=True)] * (num - len(pieces))
    return [replace(piece, kept=i >= num_dropped) for i, piece in enumerate([*pieces, *idle])]


def activation_bytes(tower: Tower, *, num_rows: int, length: int) -> int:
    """Estimate what the backward pass of a piece needs, in fp32 and with dropout.

    Besides what depends on the tokens, every piece has copies of the weights, joined or multiplied with one another.
    """
    words = next(tower.backbone.get_input_embeddings().parameters())
    num_weights = sum(parameter.numel() for parameter in tower.parameters()) - words.numel()
    return 4 * num_weights + num_rows * length * _token_bytes(tower, length)


def _token_bytes(tower: Tower, length: int) -> int:
    """Estimate what the backward pass needs of one token of a text of this length."""
    config = tower.backbone.config
    if config.model_type in T5_FAMILY:
        inner, hidden = config.num_heads * config.d_kv, config.d_ff * (2 if config.is_gated_act else 1)
    else:
        inner, hidden = config.hidden_size, config.intermediate_size
    floats = 9 * config.hidden_size + 5 * inner + 3 * config.num_attention_heads * length + 3 * hidden
    return int(4 * floats * config.num_hidden_layers)
