"""Gradients of any function of a batch's vectors, in bounded memory.

All vectors are computed first, a piece of the batch at a time. The loss of all of them gives each vector its gradient,
and the pieces take these back through the model, one after the other. A piece whose activations were not kept is
computed again for that, with the random state that it had, so that dropout drops the same.
"""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from tercet.encoder import EmbedStats, Encoder
from tercet.encoder.packed import embed_rows
from tercet.objectives.compute import ComputeSettings, Piece, cut, in_step
from tercet.objectives.gather import Gather
from tercet.training.processes import is_sharded

Forward = Callable[[list[int]], Tensor]
"""Which rows of the batch, to their vectors."""

Loss = Callable[[Tensor], Tensor]
"""The vectors of the whole batch, to one number. It is called once."""


def learn(
    encoder: Encoder, texts: Sequence[str], loss: Loss, *, compute: ComputeSettings, gather: Gather | None = None
) -> tuple[Tensor, EmbedStats]:
    """Add the gradients of a loss of the texts' vectors to those of the encoder, and to those of the loss.

    Args:
        encoder: What is trained; its dropout is on if its tower is in training mode.
        texts: The texts of a batch; each is computed by itself, equal ones too.
        loss: A function of their vectors [n, width], which are in fp32 and not normalised.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none.

    Returns:
        The loss, and how many texts, tokens and truncated texts there were.
    """
    tower, pad_id = encoder.tower, encoder.tokens.pad_id
    dtype = torch.bfloat16 if encoder.resolve_precision(compute.precision) == "fast" else None
    ids, truncated = encoder.tokens(texts)
    lengths = [len(row) for row in ids]

    def forward(rows: list[int]) -> Tensor:
        return embed_rows(tower, [ids[i] for i in rows], pad_id=pad_id, dtype=dtype)

    pieces = cut(lengths, tower, compute=compute)
    if gather is not None and any(is_sharded(parameter) for parameter in tower.parameters()):
        pieces = in_step(pieces, gather, device=encoder.device)
    value = backward(forward, pieces, loss)
    return value, EmbedStats(len(texts), sum(lengths), sum(truncated))


def backward(forward: Forward, pieces: Sequence[Piece], loss: Loss) -> Tensor:
    """Run a batch forwards and backwards, piece by piece, and return the loss."""
    states, outputs = [], []
    for piece in pieces:
        states.append(_random_state())
        with torch.set_grad_enabled(piece.kept):
            outputs.append(forward(piece.rows))
    order = torch.tensor([row for piece in pieces if not piece.idle for row in piece.rows])
    vectors = torch.cat(outputs)[: len(order)].detach()[order.argsort()].requires_grad_()
    value = loss(vectors)
    value.backward()
    gradient, end = cast(Tensor, vectors.grad), _random_state()
    for piece, state in zip(reversed(pieces), reversed(states), strict=True):
        output = outputs.pop()
        if not piece.kept:
            _set_random_state(state)
            output = forward(piece.rows)
        output.backward(torch.zeros_like(output) if piece.idle else gradient[piece.rows])
    _set_random_state(end)
    return value.detach()


def _random_state() -> list[Tensor]:
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_gpus]


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if state[1:]:
        torch.cuda.set_rng_state_all(state[1:])
