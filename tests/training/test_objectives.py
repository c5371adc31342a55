"""A step of an objective against the same step of transformers and sentence-transformers, padded and in one graph."""

import itertools
import math

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss, SoftmaxLoss
from torch.nn import functional as F

from tercet.data.rows.kinds import NliPair, Text, Triplet
from tercet.training.objectives import gradient_cache as replay
from tercet.training.objectives.classify import LABELS, NliClassifier
from tercet.training.objectives.compute import ComputeSettings, activation_bytes, cut
from tercet.training.objectives.contrast import Contrast, ContrastSettings

WHOLE = ComputeSettings(max_activation_gb=100)
REPLAYED = ComputeSettings(max_activation_gb=1e-9, max_batch_tokens=40)

TRIPLETS = [
    Triplet("A man is playing a guitar on the stage.", "Somebody plays an instrument.", ("Nobody plays.",)),
    Triplet("The stock market fell sharply on Monday.", "Stocks dropped.", ("Stocks rose.",)),
    Triplet("Two dogs run through deep snow near the old wooden fence.", "Dogs run.", ("The dogs are asleep.",)),
    Triplet("The stock market fell sharply on Monday.", "Dogs run.", ("Stocks dropped.",)),
]


@pytest.fixture
def spied(monkeypatch):
    """Record the token ids and the graph of every micro-batch."""
    calls = []

    def spy(tower, rows, **options):
        calls.append((rows, torch.is_grad_enabled()))
        return embed_rows(tower, rows, **options)

    embed_rows = replay.embed_rows
    monkeypatch.setattr(replay, "embed_rows", spy)
    return calls


def gradients(module):
    found = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return found


def backbone_gradients(model):
    """The gradients of the transformer in a tower or in a model of sentence-transformers, by its own names."""
    transformer = model[0].auto_model if isinstance(model, SentenceTransformer) else model.backbone
    return {name: p.grad for name, p in transformer.named_parameters() if p.grad is not None}


def assert_close(ours, wanted, atol=1e-5, rtol=1e-5):
    assert ours.keys() <= wanted.keys()
    for name, gradient in wanted.items():
        mine = ours[name] if name in ours else torch.zeros_like(gradient)  # the one-step decoder needs no q and k
        torch.testing.assert_close(mine, gradient, atol=atol, rtol=rtol, msg=lambda m, name=name: f"{name}: {m}")


def columns(batch):
    return [[row.anchor for row in batch], [row.positive for row in batch], [row.negatives[0] for row in batch]]


def library_vectors(encoder, texts):
    """The raw vectors of texts by transformers alone, padded: the whole decoder where there is one."""
    backbone, readout = encoder.tower.backbone, encoder.settings.readout
    layers = [p for name, p in encoder.tower.named_parameters() if not name.startswith("backbone")]
    inputs = encoder.tokens.tokenizer(texts, padding=True, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    if readout == "encdec-first":
        start = torch.full((len(texts), 1), backbone.config.decoder_start_token_id)
        x = backbone(**inputs, decoder_input_ids=start).last_hidden_state[:, 0]
    else:
        hidden = backbone(**inputs).last_hidden_state
        weight = inputs["attention_mask"][..., None].float()
        x = hidden[:, 0] if "cls" in readout else (hidden * weight).sum(1) / weight.sum(1)
    if readout == "cls-mlp":
        x = torch.tanh(F.linear(x, layers.pop(0), layers.pop(0)))
    for projection in layers:
        x = F.linear(x, projection)
    return x


@pytest.mark.parametrize("compute", [WHOLE, REPLAYED], ids=["kept", "replayed"])
@pytest.mark.parametrize(
    ("family", "readout"),
    [
        ("t5", "enc-mean"),
        ("t5", "encdec-first"),
        ("t5-1.1", "enc-mean"),
        ("t5-1.1", "encdec-first"),
        ("bert", "cls-mlp"),
        ("bert", "mean"),
        ("roberta", "cls-mlp"),
        ("roberta", "mean"),
    ],
)
def test_gradients_equal_those_of_the_padded_library(tiny, family, readout, compute):
    encoder = tiny(family, readout=readout, projection=24)
    objective = Contrast(encoder, ContrastSettings(), compute=compute)
    result = objective.step(TRIPLETS)
    ours = gradients(objective.module)
    loss = MultipleNegativesRankingLoss(None, scale=20.0).compute_loss_from_embeddings(
        [library_vectors(encoder, texts) for texts in columns(TRIPLETS)], None
    )
    loss.backward()
    assert math.isclose(result.loss, loss.item(), rel_tol=1e-5)
    assert_close(ours, gradients(objective.module))


def test_a_step_equals_the_one_of_sentence_transformers_on_the_saved_model(tiny, tmp_path):
    encoder = tiny("t5", readout="enc-mean", projection=24)
    encoder.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").eval()
    loss = MultipleNegativesRankingLoss(theirs, scale=20.0)
    value = loss([theirs.preprocess(texts) for texts in columns(TRIPLETS)], None)
    value.backward()
    objective = Contrast(encoder, ContrastSettings(), compute=REPLAYED)
    assert math.isclose(objective.step(TRIPLETS).loss, value.item(), rel_tol=1e-5)
    assert_close(backbone_gradients(encoder.tower), backbone_gradients(theirs))
    ours, wanted = (dict(m.named_parameters()) for m in (encoder.tower, theirs))
    projections = [next(p.grad for name, p in named.items() if "linear" in name) for named in (ours, wanted)]
    torch.testing.assert_close(*projections, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "readout"), [("t5", "enc-mean"), ("t5-1.1", "encdec-first"), ("bert", "cls-mlp"), ("roberta", "mean")]
)
def test_computing_twice_gives_the_gradients_of_computing_once_with_dropout(tiny, spied, family, readout):
    encoder = tiny(family, readout=readout)
    piece = activation_bytes(encoder.tower, num_rows=2, length=20) / 1e9
    results = []
    for num_kept in (100, 1, 2):
        compute = ComputeSettings(max_activation_gb=num_kept * piece, max_batch_tokens=40)
        objective = Contrast(encoder, ContrastSettings(learn_temperature=True), compute=compute)
        objective.module.train()
        torch.manual_seed(5)
        loss = objective.step(TRIPLETS).loss
        results.append((loss, gradients(objective.module), torch.rand(3), [with_graph for _, with_graph in spied]))
        spied.clear()
    (loss, wanted, then, kept), *others = results
    assert all(kept)
    num_replayed = [len(calls) - len(kept) for *_, calls in others]
    assert len(kept) > num_replayed[0] >= num_replayed[1] > 0
    assert [calls.count(False) for *_, calls in others] == num_replayed
    for other in others:
        assert other[0] == loss
        assert torch.equal(other[2], then)  # the random numbers go on as if nothing had been computed twice
        assert_close(other[1], wanted, atol=1e-6)
    objective.module.eval()
    assert objective.step(TRIPLETS).loss != loss


def test_equal_texts_are_computed_once_but_the_two_views_of_a_text_are_not(tiny, spied):
    encoder = tiny("t5", readout="enc-mean")
    objective = Contrast(encoder, ContrastSettings(), compute=WHOLE)
    objective.step(TRIPLETS)
    assert sum(len(rows) for rows, _ in spied) == len({text for column in columns(TRIPLETS) for text in column}) == 9
    spied.clear()
    alone = [Text(row.anchor) for row in TRIPLETS]
    objective.module.train()
    assert objective.step(alone).metrics["alignment"] > 1e-3  # two views, with different dropout
    assert sum(len(rows) for rows, _ in spied) == 8
    assert objective.step([Triplet(row.anchor, row.anchor) for row in TRIPLETS]).metrics["alignment"] < 1e-9


def test_texts_are_cut_in_training_and_the_encoder_still_reads_them_whole(tiny, spied):
    encoder = tiny("t5", readout="enc-mean")
    whole = encoder.tokens.max_tokens
    metrics = Contrast(encoder, ContrastSettings(), compute=ComputeSettings(max_tokens=6)).step(TRIPLETS).metrics
    assert max(len(ids) for rows, _ in spied for ids in rows) == 6
    assert metrics["truncated"] > 0
    assert encoder.tokens.max_tokens == whole
    spied.clear()
    Contrast(encoder, ContrastSettings(), compute=ComputeSettings(max_tokens=10 * whole)).step(TRIPLETS)
    assert max(len(ids) for rows, _ in spied for ids in rows) > 6


def test_masking_finds_equal_texts_in_a_batch(tiny):
    encoder = tiny("t5", readout="enc-mean")
    batch = [Triplet("Dogs run.", "Stocks."), Triplet("A man.", "Stocks."), Triplet("Snow.", "River.", ("Stocks.",))]
    a, p = (library_vectors(encoder, [getattr(row, name) for row in batch]) for name in ("anchor", "positive"))
    scores = (F.normalize(a) @ F.normalize(torch.cat([p, p[:1]])).T / 0.05).detach()
    rows = [[0, 2], [1, 2], [2, 0, 1, 3]]  # the right one first
    wanted = -sum(scores[i, row].log_softmax(0)[0].item() for i, row in enumerate(rows)) / 3
    objective = Contrast(encoder, ContrastSettings(mask_duplicates=True), compute=WHOLE)
    assert math.isclose(objective.step(batch).loss, wanted, rel_tol=1e-5)


def test_a_row_can_have_any_number_of_negatives(tiny):
    encoder = tiny("t5", readout="enc-mean")
    batch = [Triplet("Dogs run.", "Dogs move."), Triplet("Stocks fell.", "Prices dropped.", ("Snow.", "Prices rose."))]
    a, p = (library_vectors(encoder, [getattr(row, name) for row in batch]) for name in ("anchor", "positive"))
    candidates = torch.cat([p, library_vectors(encoder, list(batch[1].negatives))])
    scores = (F.normalize(a) @ F.normalize(candidates).T / 0.05).detach()
    scores[1, 2:] += 0.7
    objective = Contrast(encoder, ContrastSettings(hard_negative_weight=0.7), compute=WHOLE)
    assert math.isclose(objective.step(batch).loss, F.cross_entropy(scores, torch.arange(2)).item(), rel_tol=1e-5)


def test_a_learnt_temperature_is_trained_and_bounded(tiny):
    encoder = tiny("t5", readout="enc-mean")
    settings = ContrastSettings(temperature=0.07, learn_temperature=True, min_temperature=0.01)
    objective = Contrast(encoder, settings, compute=REPLAYED)
    values = []
    for shift in (-1e-3, 1e-3, 0.0):
        with torch.no_grad():
            objective.module.log_scale.fill_(-math.log(0.07) + shift)
        objective.module.zero_grad()
        values.append(objective.step(TRIPLETS).loss)
    slope = (values[1] - values[0]) / 2e-3
    assert math.isclose(objective.module.log_scale.grad.item(), slope, rel_tol=1e-2)
    with torch.no_grad():
        objective.module.log_scale.fill_(10.0)
    assert math.isclose(objective.step(TRIPLETS).metrics["temperature"], 0.01, rel_tol=1e-5)
    assert "log_scale" in objective.module.state_dict()
    fixed = Contrast(encoder, ContrastSettings(temperature=0.07), compute=WHOLE)
    assert "log_scale" not in fixed.module.state_dict()
    assert math.isclose(fixed.step(TRIPLETS).metrics["temperature"], 0.07, rel_tol=1e-6)


def test_metrics_are_the_geometry_of_the_batch(tiny):
    encoder = tiny("t5", readout="enc-mean", max_tokens=12)
    a, p = (np.asarray(encoder.embed(texts), np.float64) for texts in columns(TRIPLETS)[:2])
    metrics = Contrast(encoder, ContrastSettings(), compute=WHOLE).step(TRIPLETS).metrics
    assert math.isclose(metrics["alignment"], np.square(a - p).sum(1).mean(), rel_tol=1e-4)
    exps = [math.exp(-2 * np.square(x - y).sum()) for x, y in itertools.combinations(a, 2)]
    assert math.isclose(metrics["uniformity"], math.log(sum(exps) / len(exps)), rel_tol=1e-4)
    texts = {text for column in columns(TRIPLETS) for text in column}
    assert math.isclose(metrics["truncated"], sum(encoder.tokens(list(texts))[1]) / len(texts))
    assert metrics["truncated"] > 0


def test_a_loss_that_is_not_finite_is_returned(tiny):
    encoder = tiny("t5", readout="enc-mean")
    with torch.no_grad():
        encoder.tower.backbone.encoder.final_layer_norm.weight[0] = torch.nan
    assert math.isnan(Contrast(encoder, ContrastSettings(), compute=WHOLE).step(TRIPLETS).loss)


def test_bf16_leaves_weights_and_gradients_in_fp32(tiny):
    encoder = tiny("t5", readout="enc-mean")
    exact, fast = (
        Contrast(encoder, ContrastSettings(temperature=1.0), compute=ComputeSettings(precision=precision))
        for precision in ("exact", "fast")
    )
    loss = exact.step(TRIPLETS).loss
    wanted = gradients(exact.module)
    assert math.isclose(fast.step(TRIPLETS).loss, loss, rel_tol=0.01)
    ours = gradients(fast.module)
    assert {p.dtype for p in fast.module.parameters()} | {g.dtype for g in ours.values()} == {torch.float32}
    flat, flat_wanted = (torch.cat([g[name].flatten() for name in wanted]) for g in (ours, wanted))
    assert F.cosine_similarity(flat, flat_wanted, dim=0) > 0.99
    assert not torch.equal(flat, flat_wanted)


def test_a_few_steps_tell_positives_from_negatives(tiny):
    encoder = tiny("t5", readout="enc-mean")
    objective = Contrast(encoder, ContrastSettings(), compute=WHOLE)
    optimizer = torch.optim.AdamW(objective.module.parameters(), lr=1e-3)
    losses = []
    for _ in range(15):
        losses.append(objective.step(TRIPLETS[:3]).loss)
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.1 * losses[0]
    anchors, positives, negatives = (encoder.embed(texts) for texts in columns(TRIPLETS[:3]))
    assert ((anchors * positives).sum(1) > (anchors * negatives).sum(1)).all()


@pytest.mark.parametrize(
    ("family", "readout"),
    [("t5", "enc-mean"), ("t5", "encdec-first"), ("t5-1.1", "enc-mean"), ("bert", "mean"), ("roberta", "mean")],
)
def test_the_estimate_of_activations_is_near_what_autograd_saves(tiny, family, readout):
    tower = tiny(family, readout=readout).tower
    tower.train()
    weights = {p.untyped_storage().data_ptr() for p in tower.parameters()}
    for length, num_rows in ((8, 64), (60, 30)):
        saved = {}

        def keep(tensor, saved=saved):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                saved[storage.data_ptr()] = (storage.nbytes(), tensor)  # held, so that no address comes twice
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            replay.embed_rows(tower, [[5] * length] * num_rows, pad_id=0)
        measured = sum(size for size, _ in saved.values())
        assert 0.6 < measured / activation_bytes(tower, num_rows=num_rows, length=length) < 1.1


def test_pieces_keep_the_end_of_a_batch_as_far_as_memory_goes(tiny):
    tower = tiny("t5", readout="enc-mean").tower
    lengths = [5, 30, 12, 7, 30, 9, 21, 3] * 4

    def plan(max_bytes):
        compute = ComputeSettings(max_activation_gb=max_bytes / 1e9, max_batch_tokens=100)
        return cut(lengths, tower, compute=compute)

    def num_bytes(pieces):
        return sum(activation_bytes(tower, num_rows=len(p.rows), length=lengths[p.rows[0]]) for p in pieces)

    whole = num_bytes(plan(1e12))
    for budget in (whole, whole - 1, whole / 2, 1):
        pieces = plan(budget)
        assert sorted(row for piece in pieces for row in piece.rows) == list(range(len(lengths)))
        kept = [piece.kept for piece in pieces]
        assert kept == sorted(kept)  # the last ones
        assert num_bytes(piece for piece in pieces if piece.kept) <= budget
        assert all(kept) == (budget == whole)
    assert 0 < sum(piece.kept for piece in plan(whole / 2)) < len(plan(whole / 2))
    assert [len(piece.rows) for piece in plan(1)] == [1] * len(lengths)


PAIRS = [
    NliPair("A man is playing a guitar.", "Somebody plays an instrument.", "entailment"),
    NliPair("A man is playing a guitar.", "The man is tall.", "neutral"),
    NliPair("Stocks dropped.", "Stocks rose.", "contradiction"),
]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("compute", [WHOLE, REPLAYED], ids=["kept", "replayed"])
def test_classification_equals_the_softmax_loss_of_sentence_transformers(tiny, tmp_path, normalize, compute):
    encoder = tiny("bert", readout="mean", normalize=normalize)
    encoder.save(tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").eval()
    objective = NliClassifier(encoder, compute=compute)
    loss = SoftmaxLoss(theirs, encoder.dim, 3)
    classifier = objective.module["classifier"]
    with torch.no_grad():
        loss.classifier.weight.copy_(classifier.weight)
        loss.classifier.bias.copy_(classifier.bias)
    texts = [row.premise for row in PAIRS], [row.hypothesis for row in PAIRS]
    labels = torch.tensor([LABELS.index(row.label) for row in PAIRS])
    value = loss([theirs.preprocess(column) for column in texts], labels)
    value.backward()
    result = objective.step(PAIRS)
    assert math.isclose(result.loss, value.item(), rel_tol=1e-5)
    torch.testing.assert_close(classifier.weight.grad, loss.classifier.weight.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(classifier.bias.grad, loss.classifier.bias.grad, atol=1e-5, rtol=1e-5)
    assert_close(backbone_gradients(encoder.tower), backbone_gradients(theirs))
    with torch.no_grad():
        u, v = (torch.from_numpy(encoder.embed(column)) for column in texts)
        guesses = classifier(torch.cat([u, v, (u - v).abs()], 1)).argmax(1)
    assert math.isclose(result.metrics["accuracy"], (guesses == labels).float().mean().item(), rel_tol=1e-6)


def test_the_classifier_is_not_saved_with_the_encoder(tiny, tmp_path):
    encoder = tiny("bert", readout="mean")
    NliClassifier(encoder, compute=WHOLE).step(PAIRS)
    encoder.save(tmp_path / "model")
    from safetensors.torch import load_file

    assert not any("classifier" in name for name in load_file(tmp_path / "model" / "model.safetensors"))
