"""Gradients of any function of a batch's vectors, in bounded memory.

All vectors are computed first, a piece of the batch at a time. The loss of all of them gives each vector its gradient,
and the pieces take these back through the model, one after the other. A piece whose activations were not kept is
computed again for that, with the random state that it had, so that dropout drops the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from tercet.encoder.encoder import Encoder
from tercet.encoder.forward.vectors import embed_rows
from tercet.encoder.model.settings import EmbedStats
from tercet.training.loop.processes import is_sharded
from tercet.training.objectives.compute import ComputeSettings, Piece, cut, in_step
from tercet.training.objectives.gather import Gather

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
    return learn_together([(encoder, texts)], loss, compute=compute, gather=gather)


def learn_together(
    parts: Sequence[tuple[Encoder, Sequence[str]]],
    loss: Loss,
    *,
    compute: ComputeSettings,
    gather: Gather | None = None,
) -> tuple[Tensor, EmbedStats]:
    """Do as `learn` with several encoders, each with its own texts; the loss gets all vectors, part after part."""
    max_bytes = compute.activation_bytes(*(encoder.tower for encoder, _ in parts)) // len(parts)
    rows: list[tuple[Encoder, list[int]]] = []
    pieces: list[Piece] = []
    num_truncated = 0
    for encoder, texts in parts:
        ids, truncated = encoder.tokens.cut_to(compute.max_tokens)(texts)
        own = cut([len(row) for row in ids], encoder.tower, compute=compute, max_bytes=max_bytes)
        if gather is not None and any(is_sharded(parameter) for parameter in encoder.tower.parameters()):
            own = in_step(own, gather, device=encoder.device)
        pieces += [replace(piece, rows=[len(rows) + row for row in piece.rows]) for piece in own]
        rows += [(encoder, row) for row in ids]
        num_truncated += sum(truncated)

    def forward(numbers: list[int]) -> Tensor:
        encoder = rows[numbers[0]][0]
        dtype = torch.bfloat16 if encoder.resolve_precision(compute.precision) == "fast" else None
        ids = [rows[i][1] for i in numbers]
        return embed_rows(encoder.tower, ids, pad_id=encoder.tokens.pad_id, dtype=dtype)

    value = backward(forward, pieces, loss)
    return value, EmbedStats(len(rows), sum(len(ids) for _, ids in rows), num_truncated)


def backward(forward: Forward, pieces: Sequence[Piece], loss: Loss) -> Tensor:
    """Run a batch forwards and backwards, piece by piece, and return the loss."""
    states, outputs = [], []
    for piece in pieces:
        states.append(_random_state())
        with torch.set_grad_enabled(piece.kept):
            outputs.append(forward(piece.rows))
    order = torch.tensor([row for piece in pieces if not piece.idle for row in piece.rows])
    found = torch.cat([o.detach() for piece, o in zip(pieces, outputs, strict=True) if not piece.idle])
    vectors = found[order.argsort()].requires_grad_()
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
