"""Contrast: an anchor's positive against all other positives and all hard negatives of the batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tercet.data.rows.kinds import Text, Triplet, as_triplet
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.tower import unit_length
from tercet.evaluation.geometry import alignment, uniformity
from tercet.storage.hashing import text_key
from tercet.training.loop.loop import StepResult
from tercet.training.objectives.batch import merge_equal
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.gradient_cache import learn
from tercet.training.objectives.masked import MaskedSettings, MaskedWords
from tercet.training.objectives.matryoshka import MatryoshkaSettings, mean_over_widths
from tercet.training.objectives.temperature import TemperatureSettings, Trained

Directions = Literal["forward", "both"]

_MAX_SCORES = 2**24
"""How many scores are in memory at a time: 64 MB; of a larger batch, a block of rows is computed at a time."""

_MAX_UNIFORMITY = 2048
"""How many anchors the uniformity of a batch is taken over."""


class ContrastSettings(TemperatureSettings, MaskedSettings, MatryoshkaSettings):
    """What can be chosen about the contrastive objective."""

    hard_negative_weight: float = 0.0
    """What is added to the scores of a row's own negatives, after division by the temperature."""

    directions: Directions = "forward"
    """`both` adds the loss of each positive against all anchors, which knows no hard negatives."""

    margin: NonNegativeFloat = 0.0
    """What is taken from the cosine of an anchor and its positive."""

    mask_duplicates: bool = False
    """Whether texts elsewhere in the batch that equal a row's positive, and positives of the same anchor, are left out
    of its negatives."""


class Contrast:
    """The contrastive objective.

    Args:
        encoder: What is trained.
        settings: What the loss is.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none. With it, the gradients of a step are
            those of the whole batch once they are summed over the processes.
        words: The loss of masked words, where it is added.

    Attributes:
        module: Everything that is trained: the tower, the temperature where it is learnt, and a head for words.
    """

    def __init__(
        self,
        encoder: Encoder,
        settings: ContrastSettings,
        *,
        compute: ComputeSettings,
        gather: Gather | None = None,
        words: MaskedWords | None = None,
    ) -> None:
        self._encoder = encoder
        self._settings = settings
        self._compute = compute
        self._gather = gather
        self._words = words
        self.module = Trained(settings, tower=encoder.tower).to(encoder.device)
        if words is not None:
            self.module.add_module("words", words.module)

    def step(self, batch: Sequence[Text | Triplet]) -> StepResult:
        """Add the gradients of a batch's loss to the module's. A text is its own positive, seen with other dropout."""
        settings, gather = self._settings, self._gather
        texts, columns = _lay_out(batch, self._encoder.device)
        columns = columns if gather is None else _join(columns, gather)
        temperature = self.module.temperature()
        if gather is not None:
            temperature = gather.share(temperature)
        metrics = {"temperature": temperature.item()}

        def loss(own: Tensor) -> Tensor:
            vectors = own if gather is None else gather(own)
            anchors, positives, negatives = (vectors[column] for column in columns.texts)
            metrics.update(batch_geometry(anchors.detach(), positives.detach()))
            return mean_over_widths(settings.dims, lambda width: loss_of(anchors, positives, negatives, width))

        def loss_of(anchors: Tensor, positives: Tensor, negatives: Tensor, width: int | None) -> Tensor:
            return contrastive_loss(
                anchors[:, :width],
                positives[:, :width],
                negatives[:, :width],
                owners=columns.owners,
                keys=columns.text_keys if settings.mask_duplicates else None,
                temperature=temperature,
                hard_negative_weight=settings.hard_negative_weight,
                directions=settings.directions,
                margin=settings.margin,
            )

        value, stats = learn(self._encoder, texts, loss, compute=self._compute, gather=gather)
        total = value.item()
        if self._words is not None:
            metrics["mlm"] = self._words.learn(texts)
            total += (settings.mlm_weight or 0.0) * metrics["mlm"]
        return StepResult(total, metrics | {"truncated": stats.num_truncated / stats.num_texts})


def contrastive_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    owners: Tensor | None = None,
    keys: tuple[Tensor, Tensor, Tensor] | None = None,
    temperature: Tensor | float = 0.05,
    hard_negative_weight: float = 0.0,
    directions: Directions = "forward",
    margin: float = 0.0,
) -> Tensor:
    """Return the mean cross-entropy of each anchor's positive among all positives and all hard negatives.

    Args:
        anchors: Vectors [n, width] of any length.
        positives: The same number of vectors, each belonging to the anchor of its row.
        negatives: Vectors [m, width] of the hard negatives of all rows, or None.
        owners: To which row each hard negative belongs [m]; where None, row i has the i-th. Negatives that belong to no
            row, as those of a queue, need none as long as `hard_negative_weight` is 0.
        keys: Numbers that are equal for equal texts, of anchors [n], positives [n] and negatives [m]. Where given, a
            candidate with the same text as the right one is left out, and so is the right one of an equal query.
        temperature: What cosines are divided by.
        hard_negative_weight: What is added to the scores of a row's own hard negatives.
        directions: Whether the positives' cross-entropy among all anchors is added.
        margin: What is taken from the cosine of an anchor and its positive.
    """
    rows = torch.arange(len(anchors), device=anchors.device)
    negatives = anchors[:0] if negatives is None else negatives
    owners = rows[: len(negatives)] if owners is None else owners
    anchors, positives, negatives = map(unit_length, (anchors, positives, negatives))
    candidates = torch.cat([positives, negatives])
    owners = torch.cat([torch.full_like(rows, -1), owners])
    mean_loss = partial(_mean_loss, temperature=temperature, margin=margin)
    there, back = (None, None) if keys is None else ((keys[0], torch.cat(keys[1:])), (keys[1], keys[0]))
    loss = mean_loss(anchors, candidates, keys=there, owners=owners, weight=hard_negative_weight)
    if directions == "both":
        loss = loss + mean_loss(positives, anchors, keys=back)
    return loss


def _mean_loss(
    queries: Tensor,
    candidates: Tensor,
    *,
    temperature: Tensor | float,
    margin: float,
    keys: tuple[Tensor, Tensor] | None,
    owners: Tensor | None = None,
    weight: float = 0.0,
) -> Tensor:
    """Return the mean cross-entropy of the i-th candidate for the i-th query, a block of queries at a time."""

    def sum_of(block: Tensor) -> Tensor:
        right = torch.arange(len(candidates), device=block.device) == block[:, None]
        scores = queries[block] @ candidates.T
        if margin:
            scores = scores - margin * right
        scores = scores / temperature
        if owners is not None and weight:
            scores = scores + weight * (owners == block[:, None])
        if keys is not None:
            query_keys, candidate_keys = keys
            as_right = candidate_keys == candidate_keys[block, None]
            as_right[:, : len(query_keys)] |= query_keys == query_keys[block, None]
            scores = scores.masked_fill(as_right & ~right, -torch.inf)
        return F.cross_entropy(scores, block, reduction="sum")

    rows = torch.arange(len(queries), device=queries.device)
    blocks = rows.split(max(1, _MAX_SCORES // len(candidates)))
    if len(blocks) == 1:
        return sum_of(rows) / len(rows)
    parts = [checkpoint(sum_of, block, use_reentrant=False, preserve_rng_state=False) for block in blocks]
    return torch.stack(parts).sum() / len(rows)


@dataclass(frozen=True)
class _Columns:
    """Where the columns of a batch stand among its vectors."""

    texts: tuple[Tensor, Tensor, Tensor]
    """Of each anchor, positive and negative, the place of its vector."""

    owners: Tensor
    """Of each negative, the place of its row."""

    keys: Tensor
    """Of each vector, the number that stands for its text."""

    @property
    def text_keys(self) -> tuple[Tensor, Tensor, Tensor]:
        """The keys of anchors, positives and negatives."""
        anchors, positives, negatives = self.texts
        return self.keys[anchors], self.keys[positives], self.keys[negatives]


def _lay_out(batch: Sequence[Text | Triplet], device: torch.device) -> tuple[list[str], _Columns]:
    """Return the texts of a batch, equal ones once, and where its columns are among them.

    A text by itself is there twice: dropout makes two views of it, as in SimCSE.
    """
    rows = [as_triplet(row) for row in batch]
    texts = [*(row.anchor for row in rows), *(row.positive for row in rows)]
    apart = [isinstance(row, Text) for row in batch] * 2
    owned = [(i, text) for i, row in enumerate(rows) for text in row.negatives]
    texts += [text for _, text in owned]
    merged, where = merge_equal(texts, apart=apart + [False] * len(owned))
    places = torch.tensor(where, device=device)
    anchors, positives, negatives = places.split([len(batch), len(batch), len(owned)])
    owners = torch.tensor([i for i, _ in owned], dtype=torch.int64, device=device)
    keys = torch.tensor([text_key(text) for text in merged], device=device)
    return merged, _Columns((anchors, positives, negatives), owners, keys)


def _join(own: _Columns, gather: Gather) -> _Columns:
    """Return the columns of the batch of all processes: their rows and their vectors stand one after the other."""
    anchors, positives, negatives = (gather.parts(column) for column in own.texts)
    owners, keys = gather.parts(own.owners), gather.parts(own.keys)

    def joined(parts: list[Tensor], sizes_of: list[Tensor]) -> Tensor:
        starts = accumulate((len(part) for part in sizes_of), initial=0)
        return torch.cat([part + start for part, start in zip(parts, starts, strict=False)])

    texts = (joined(anchors, keys), joined(positives, keys), joined(negatives, keys))
    return _Columns(texts, joined(owners, anchors), torch.cat(keys))


def batch_geometry(anchors: Tensor, positives: Tensor) -> dict[str, float]:
    """Return the alignment of a batch's pairs and the uniformity of its anchors."""
    if len(anchors) < 2:
        return {}
    first, second = (unit_length(column).cpu().numpy() for column in (anchors, positives))
    return {"alignment": alignment(first, second), "uniformity": uniformity(first[:_MAX_UNIFORMITY])}
