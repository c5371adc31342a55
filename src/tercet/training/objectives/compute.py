"""How a batch is computed: in which precision, in which pieces, and how much of it is kept in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt

from tercet.encoder.forward.batches import batches_by_length
from tercet.encoder.forward.memory import num_layers_of, room_on, token_bytes, trained_tokens_at_once
from tercet.encoder.model.tower import Tower
from tercet.storage.settings import Settings
from tercet.training.objectives.gather import Gather

USUAL_ACTIVATION_GB = 2.0
"""How much of a batch's activations is in memory at a time on a CPU."""

_LEAST_BYTES = 2**28


class ComputeSettings(Settings):
    """What can be chosen about computing a batch. Gradients are the same in any number of pieces, dropout aside."""

    precision: Literal["exact", "fast", "auto"] = "exact"
    """`exact` (fp32), `fast` (products in bf16; weights, their gradients and the residual stream in fp32), or `auto`
    (`fast` where the machine has bf16)."""

    max_tokens: PositiveInt | None = Field(default=None, exclude_if=lambda num: num is None)
    """The most tokens of a text that are read in training, prompt and special tokens included; as many as the encoder
    reads where null. The encoder that comes out reads as much as before."""

    usual_batch_tokens: ClassVar[int] = 2048

    max_batch_tokens: PositiveInt | None = None
    """The most tokens that go through the model at once; less where `max_activation_gb` demands it. 2,048 on a CPU
    where null, and as many as `max_activation_gb` allows on a GPU."""

    max_activation_gb: PositiveFloat | None = None
    """How much of a batch's activations may be in memory at a time, by estimate. What exceeds it is computed twice.
    2 on a CPU where null, and on a GPU what its memory has beside the weights, their gradients and the optimizer."""

    def activation_bytes(self, *towers: Tower) -> int:
        """Return how many bytes of activations may be in memory at a time while these towers are trained."""
        if self.max_activation_gb is not None:
            return round(self.max_activation_gb * 1e9)
        num_weights = sum(_num_here(parameter) for tower in towers for parameter in tower.parameters())
        room = room_on(towers[0].device, num_weights, trained=True)
        return int(USUAL_ACTIVATION_GB * 1e9) if room is None else max(room, _LEAST_BYTES)

    def word_tokens(self, tower: Tower) -> int:
        """Return how many tokens a model that scores words reads at once: scores take more memory than vectors."""
        if self.max_batch_tokens is not None:
            return self.max_batch_tokens
        num_weights = sum(map(_num_here, tower.parameters()))
        return trained_tokens_at_once(tower.config, num_weights, tower.device, usual=self.usual_batch_tokens)


@dataclass(frozen=True)
class Piece:
    """A part of a batch that goes through the model at once."""

    rows: list[int]
    """Which rows of the batch."""

    kept: bool
    """Whether its activations stay in memory for the backward pass; else the forward pass is repeated there."""

    idle: bool = False
    """Whether it is computed for nothing, while other processes have more to do."""


def cut(lengths: Sequence[int], tower: Tower, *, compute: ComputeSettings, max_bytes: int | None = None) -> list[Piece]:
    """Cut a batch into pieces of similar length, and keep the last ones as far as the memory goes.

    The last pieces are the first to go through the backward pass. So their memory is free again when the first
    activations are computed for the second time.

    Args:
        lengths: How many tokens each text has.
        tower: What computes them.
        compute: How.
        max_bytes: The tower's part of the memory, where others have theirs; all of it where None.
    """
    budget = compute.activation_bytes(tower) if max_bytes is None else max_bytes
    max_tokens = int(budget / _token_bytes(tower, max(lengths)))
    if compute.max_batch_tokens is not None or tower.device.type != "cuda":
        max_tokens = min(max_tokens, compute.max_batch_tokens or compute.usual_batch_tokens)
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
    return token_bytes(tower.config, length) * num_layers_of(tower.config)


def _num_here(parameter: torch.Tensor) -> int:
    """Return how many of a parameter's numbers this process has."""
    here: torch.Tensor = getattr(parameter, "to_local", lambda: parameter)()
    return here.numel()
