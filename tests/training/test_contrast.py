"""The contrastive loss against sums written out here and against sentence-transformers."""

import math

import pytest
import torch
from pydantic import ValidationError
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from tercet.training.objectives import contrast
from tercet.training.objectives.contrast import ContrastSettings, contrastive_loss

N, WIDTH = 5, 7
OWNERS = [0, 0, 1, 3, 3, 3]  # two hard negatives, one, none, three, none


def vectors(*sizes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(n, WIDTH, generator=generator, dtype=dtype, requires_grad=True) for n in sizes]


def written_out(a, p, h, owners, *, temperature=0.05, weight=0.0, both=False, margin=0.0, keys=None):
    """The loss row by row and candidate by candidate."""

    def cosine(x, y):
        return (x * y).sum() / (x.square().sum().sqrt() * y.square().sum().sqrt())

    def row(right, others):
        exps = [torch.exp((right - margin) / temperature), *(torch.exp(s / temperature + w) for s, w in others)]
        return -torch.log(exps[0] / torch.stack(exps).sum())

    ka, kp, kn = keys or (range(len(a)), range(len(p)), range(100, 100 + len(h)))
    total = 0.0
    for i in range(len(a)):
        strangers = [j for j in range(len(a)) if j != i and kp[j] != kp[i] and ka[j] != ka[i]]
        others = [(cosine(a[i], p[j]), 0.0) for j in strangers]
        for j in range(len(h)):
            if kn[j] != kp[i]:
                others.append((cosine(a[i], h[j]), weight if owners[j] == i else 0.0))
        total = total + row(cosine(a[i], p[i]), others)
        if both:
            total = total + row(cosine(a[i], p[i]), [(cosine(p[i], a[j]), 0.0) for j in strangers])
    return total / len(a)


def assert_same(one, two, leaves):
    torch.testing.assert_close(one, two)
    for a, b in zip(torch.autograd.grad(one, leaves), torch.autograd.grad(two, leaves), strict=True):
        torch.testing.assert_close(a, b)


KEYS = (
    [1, 2, 1, 4, 5],
    [6, 7, 8, 6, 7],
    [8, 9, 7, 6, 11, 12],
)  # equal anchors, positives, and negatives like positives


@pytest.mark.parametrize("keys", [None, KEYS], ids=["unmasked", "masked"])
@pytest.mark.parametrize("directions", ["forward", "both"])
@pytest.mark.parametrize(("weight", "margin", "temperature"), [(0.0, 0.0, 0.05), (1.5, 0.2, 0.3)])
def test_the_loss_is_the_one_written_out(keys, directions, weight, margin, temperature):
    a, p, h = vectors(N, N, len(OWNERS))
    scale = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    loss = contrastive_loss(
        a,
        p,
        h,
        owners=torch.tensor(OWNERS),
        keys=keys and tuple(map(torch.tensor, keys)),
        temperature=scale,
        hard_negative_weight=weight,
        directions=directions,
        margin=margin,
    )
    both = directions == "both"
    wanted = written_out(a, p, h, OWNERS, temperature=scale, weight=weight, both=both, margin=margin, keys=keys)
    assert_same(loss, wanted, [a, p, h, scale])


def test_without_hard_negatives_the_other_positives_are_the_negatives():
    a, p = vectors(N, N)
    assert_same(contrastive_loss(a, p), written_out(a, p, [], []), [a, p])


@pytest.mark.parametrize(
    ("keys", "strangers"),
    [
        (([1, 2, 3], [4, 4, 5], [5]), ([2, 3], [2, 3], [0, 1])),
        (([1, 1, 2], [3, 4, 5], [6]), ([2, 3], [2, 3], [0, 1, 3])),
    ],
    ids=["equal texts", "positives of one anchor"],
)
def test_what_is_right_as_well_does_not_count(keys, strangers):
    a, p, h = vectors(3, 3, 1)
    masked = contrastive_loss(a, p, h, owners=torch.tensor([0]), keys=tuple(map(torch.tensor, keys)))
    candidates = torch.cat([p, h])
    rows = [contrastive_loss(a[i : i + 1], p[i : i + 1], candidates[others]) for i, others in enumerate(strangers)]
    torch.testing.assert_close(masked, torch.stack(rows).mean())


@pytest.mark.parametrize("num_negatives", [0, 1, 2])
@pytest.mark.parametrize("directions", ["forward", "both"])
def test_the_loss_equals_the_one_of_sentence_transformers(num_negatives, directions):
    a, p, *columns = vectors(*[N] * (2 + num_negatives), dtype=torch.float32)
    names = ("query_to_doc",) if directions == "forward" else ("query_to_doc", "doc_to_query")
    theirs = MultipleNegativesRankingLoss(None, scale=20.0, directions=names, partition_mode="per_direction")
    wanted = theirs.compute_loss_from_embeddings([a, p, *columns], None) * len(names)  # theirs is the mean of both
    owners = torch.arange(N).repeat(num_negatives)
    negatives = torch.cat(columns) if columns else None
    ours = contrastive_loss(a, p, negatives, owners=owners, temperature=1 / 20, directions=directions)
    assert_same(ours, wanted, [a, p, *columns])


@pytest.mark.parametrize("directions", ["forward", "both"])
def test_a_batch_computed_in_blocks_of_rows_has_the_same_loss(monkeypatch, directions):
    a, p, h = vectors(N, N, len(OWNERS))
    options = {
        "owners": torch.tensor(OWNERS),
        "keys": tuple(map(torch.tensor, KEYS)),
        "hard_negative_weight": 0.5,
        "directions": directions,
    }
    whole = contrastive_loss(a, p, h, **options)
    monkeypatch.setattr(contrast, "_MAX_SCORES", 2 * (N + len(OWNERS)))
    assert_same(contrastive_loss(a, p, h, **options), whole, [a, p, h])


def test_a_learnt_temperature_cannot_start_below_its_least():
    with pytest.raises(ValidationError, match=r"0\.005 is below min_temperature 0\.01"):
        ContrastSettings(temperature=0.005, learn_temperature=True)
    assert math.isclose(ContrastSettings(temperature=0.005).temperature, 0.005)


def test_an_unknown_setting_is_refused():
    with pytest.raises(ValidationError, match="tau"):
        ContrastSettings(tau=0.05)
