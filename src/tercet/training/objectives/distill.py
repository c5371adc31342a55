"""Distillation: vectors like those of a teacher, and as similar to one another as the teacher's are."""

from collections.abc import Callable, Sequence
from itertools import accumulate, combinations

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor
from torch.nn import functional as F

from tercet.data.rows.kinds import Row, texts_of
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.tower import unit_length
from tercet.storage.hashing import text_key
from tercet.training.loop.loop import StepResult
from tercet.training.objectives.batch import merge_equal
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.gradient_cache import learn
from tercet.training.objectives.matryoshka import MatryoshkaSettings, mean_over_widths

_NONE = -1e9
"""The score of what is not compared; finite, so that the gradient of a text that has no others is 0."""


class DistillSettings(MatryoshkaSettings):
    """What can be chosen about the distillation objective."""

    cosine_weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """How much it counts that each vector points where the teacher's does: the mean of 1 - cosine."""

    similarity_weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """How much it counts that the texts of a batch are as similar to one another as to the teacher: the mean
    divergence (KL) of each text's softmax over its cosines with all others."""

    temperature: PositiveFloat = 0.05
    """What those cosines are divided by, the teacher's and the student's."""

    pair_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How much it counts that the texts of a row are as similar to one another as to the teacher: the mean squared
    difference of their cosines. The softmax above hardly sees how near the nearest text is."""


class Distill:
    """The distillation objective.

    Args:
        encoder: What is trained.
        targets: Gives the vectors [n, encoder.dim] that the texts of some keys should have.
        settings: What the loss is.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none. With it, the gradients of a step are
            those of the whole batch once they are summed over the processes.

    Attributes:
        module: Everything that is trained: the tower.
    """

    def __init__(
        self,
        encoder: Encoder,
        targets: Callable[[Tensor], Tensor],
        settings: DistillSettings,
        *,
        compute: ComputeSettings,
        gather: Gather | None = None,
    ) -> None:
        self._encoder, self._targets, self._settings = encoder, targets, settings
        self._compute, self._gather = compute, gather
        self.module = encoder.tower

    def step(self, batch: Sequence[Row]) -> StepResult:
        """Add the gradients of a batch's loss to the module's."""
        gather, settings, device = self._gather, self._settings, self._encoder.device
        texts = [text for row in batch for text in texts_of(row)]
        merged, where = merge_equal(texts)
        pairs = pairs_of_rows(batch, where).to(device)
        keys = torch.tensor([text_key(text) for text in merged])
        targets, keys = self._targets(keys).to(device), keys.to(device)
        if gather is not None:
            parts = gather.parts(targets)
            firsts = accumulate((len(part) for part in parts), initial=0)
            pairs = torch.cat([own + first for own, first in zip(gather.parts(pairs), firsts, strict=False)])
            targets, keys = torch.cat(parts), torch.cat(gather.parts(keys))
        once, places = first_of_equal(keys)  # a text that several processes have counts as in one
        targets, keys, pairs = targets[once], keys[once], places[pairs]
        metrics: dict[str, float] = {}

        def loss(own: Tensor) -> Tensor:
            vectors = (own if gather is None else gather(own))[once]
            cosine = cosine_loss(vectors, targets)
            similarity = mean_over_widths(
                settings.dims,
                lambda width: similarity_loss(vectors[:, :width], targets, keys=keys, temperature=settings.temperature),
            )
            pair = mean_over_widths(settings.dims, lambda width: pair_loss(vectors[:, :width], targets, pairs))
            metrics.update(cosine=cosine.item(), similarity=similarity.item(), pair=pair.item())
            return (
                settings.cosine_weight * cosine + settings.similarity_weight * similarity + settings.pair_weight * pair
            )

        value, stats = learn(self._encoder, merged, loss, compute=self._compute, gather=gather)
        return StepResult(value.item(), metrics | {"truncated": stats.num_truncated / stats.num_texts})


def cosine_loss(vectors: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of 1 - cosine of each vector [n, width] and its target [n, width]."""
    return 1 - F.cosine_similarity(vectors, targets, dim=1).mean()


def similarity_loss(vectors: Tensor, targets: Tensor, *, keys: Tensor, temperature: float) -> Tensor:
    """Return the mean divergence of each vector's softmax over its cosines with the others from its target's.

    Args:
        vectors: Vectors [n, width] of any length.
        targets: Vectors [n, any width] of any length.
        keys: Numbers [n] that are equal for equal texts, which are not compared with one another.
        temperature: What cosines are divided by.
    """
    same = keys == keys[:, None]

    def log_shares(x: Tensor) -> Tensor:
        x = unit_length(x)
        return (x @ x.T / temperature).masked_fill(same, _NONE).log_softmax(1).masked_fill(same, 0)

    wanted = log_shares(targets)
    shares = wanted.exp().masked_fill(same, 0)
    return (shares * (wanted - log_shares(vectors))).sum() / len(vectors)


def pair_loss(vectors: Tensor, targets: Tensor, pairs: Tensor) -> Tensor:
    """Return the mean squared difference of the vectors' and the targets' cosines, over pairs of places [m, 2]."""

    def cosines(x: Tensor) -> Tensor:
        return F.cosine_similarity(x[pairs[:, 0]], x[pairs[:, 1]], dim=1)

    return (cosines(vectors) - cosines(targets)).square().sum() / max(1, len(pairs))


def first_of_equal(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each different key [n] stands first, and for each of the n its place among those."""
    firsts: dict[int, int] = {}
    for place, key in enumerate(keys.tolist()):
        firsts.setdefault(key, place)
    places = {key: i for i, key in enumerate(firsts)}
    once = torch.tensor([*firsts.values()], device=keys.device)
    return once, torch.tensor([places[key] for key in keys.tolist()], device=keys.device)


def pairs_of_rows(batch: Sequence[Row], where: Sequence[int]) -> Tensor:
    """Return every two different texts of the same row, as places [m, 2].

    Args:
        batch: The rows.
        where: The place of each of their texts, row after row.
    """
    places, pairs = iter(where), list[tuple[int, int]]()
    for row in batch:
        pairs += combinations(sorted({next(places) for _ in texts_of(row)}), 2)
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
