"""The packed forward against transformers' own, at every precision."""

import numpy as np
import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from tercet import Encoder
from tercet.encoder.forward import int8, linear
from tercet.encoder.forward.batches import batches_by_length, pad
from tercet.encoder.forward.engine import PackedEngine, PaddedEngine
from tercet.encoder.forward.linear import Prepared
from tercet.encoder.forward.pack import dropout
from tercet.encoder.forward.t5 import distance_buckets
from tercet.encoder.forward.vectors import embed_rows
from tercet.errors import SettingError

MODELS = [
    *(
        (family, readout)
        for family in ("t5", "t5-1.1", "umt5")
        for readout in ("enc-mean", "enc-first", "encdec-first")
    ),
    ("mt5", "encdec-first"),
    ("byt5", "enc-mean"),
    ("t5", "first-last-mean"),
    ("t5", "top2-mean"),
    *(
        ("bert", readout)
        for readout in ("mean", "cls", "cls-mlp", "first-last-mean", "embedding-last-mean", "top2-mean")
    ),
    ("roberta", "mean"),
]


def padded(encoder, texts, **kwargs):
    """Return the vectors of transformers' forward, in one padded batch."""
    rows, _ = encoder.tokens(texts)
    ids, mask = pad(rows, pad_id=encoder.tokens.pad_id)
    with torch.no_grad():
        return encoder.tower(ids, mask).numpy()


@pytest.mark.parametrize(("family", "readout"), MODELS)
def test_packed_vectors_equal_those_of_transformers(tiny, sentences, family, readout):
    encoder = tiny(family, readout=readout, projection=48)
    assert not encoder._engine("exact").padded
    np.testing.assert_allclose(encoder.embed(sentences), padded(encoder, sentences), atol=1e-5)


@pytest.mark.parametrize(("family", "readout"), MODELS)
def test_lower_precisions_are_close(tiny, sentences, family, readout):
    encoder = tiny(family, readout=readout)
    exact = padded(encoder, sentences)
    assert (encoder.embed(sentences, precision="fast") * exact).sum(1).min() > 0.9995
    assert (encoder.embed(sentences, precision="int8") * exact).sum(1).min() > 0.995


@pytest.mark.parametrize(
    ("family", "readout"),
    [
        ("t5", "enc-mean"),
        ("t5-1.1", "encdec-first"),
        ("umt5", "encdec-first"),
        ("bert", "cls-mlp"),
        ("roberta", "mean"),
    ],
)
def test_gradients_equal_those_of_transformers(tiny, sentences, family, readout):
    encoder = tiny(family, readout=readout)
    rows, _ = encoder.tokens(sentences)
    wanted = torch.randn(len(rows), encoder.dim, generator=torch.manual_seed(1))

    def gradients(vectors):
        encoder.tower.zero_grad()
        (vectors * wanted).sum().backward()
        return {name: p.grad.clone() for name, p in encoder.tower.named_parameters() if p.grad is not None}

    packed = gradients(embed_rows(encoder.tower, rows, pad_id=encoder.tokens.pad_id))
    reference = gradients(encoder.tower.raw(*pad(rows, pad_id=encoder.tokens.pad_id)))
    assert packed.keys() == reference.keys()
    for name, gradient in reference.items():
        torch.testing.assert_close(packed[name], gradient, atol=1e-4 * float(gradient.abs().max()) + 1e-6, rtol=1e-3)


def test_dropout_is_there_in_training_only(tiny, sentences):
    encoder = tiny("t5", readout="encdec-first")
    rows, _ = encoder.tokens(sentences)
    quiet = [embed_rows(encoder.tower, rows, pad_id=0) for _ in range(2)]
    torch.testing.assert_close(*quiet, atol=0, rtol=0)
    encoder.tower.train()
    noisy = [embed_rows(encoder.tower, rows, pad_id=0) for _ in range(2)]
    assert not torch.allclose(*noisy)


def test_a_model_trains_in_bf16_with_fp32_gradients(tiny, sentences):
    encoder = tiny("t5")
    rows, _ = encoder.tokens(sentences)
    vectors = embed_rows(encoder.tower, rows, pad_id=0, dtype=torch.bfloat16)
    assert vectors.dtype == torch.float32
    vectors.sum().backward()
    assert {p.grad.dtype for p in encoder.tower.parameters() if p.grad is not None} == {torch.float32}


@pytest.mark.parametrize("precision", ["exact", "fast", "int8"])
def test_public_operators_give_the_same_vectors_where_private_ones_are_missing(tiny, sentences, precision, monkeypatch):
    encoder = tiny("t5", readout="encdec-first")
    expected = encoder.embed(sentences, precision=precision)
    has_bf16 = precision == "fast" or (precision == "int8" and linear.has_bf16())  # in which some products of int8 are
    for module in (linear, int8):
        monkeypatch.setattr(module, "has_operators", lambda *_names: False)
    again = tiny("t5", readout="encdec-first")
    atol = 1e-2 if has_bf16 else 1e-5
    np.testing.assert_allclose(again.embed(sentences, precision=precision), expected, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu-tanh"])
def test_a_prepared_product_equals_the_public_one(dtype, activation):
    generator = torch.manual_seed(3)
    x, weight, bias = (torch.randn(*size, generator=generator) for size in ((30, 16), (24, 16), (24,)))
    expected = linear.ACTIVATIONS[activation](torch.nn.functional.linear(x, weight, bias))
    product = Prepared(dtype)(weight, bias, activation)
    atol = 1e-5 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(product(x).float(), expected, atol=atol, rtol=0)
    if activation == "none":
        torch.testing.assert_close(product.add(x, torch.ones(30, 24)), expected + 1, atol=atol, rtol=0)


def test_distances_fall_into_the_buckets_of_transformers():
    distance = torch.arange(-600, 601)
    theirs = T5Attention._relative_position_bucket(distance, True, 32, 128)
    torch.testing.assert_close(distance_buckets(distance, 32, 128), theirs)


def test_a_padding_token_within_a_text_has_the_position_that_roberta_gives_it(tiny):
    encoder = tiny("roberta")
    texts = ["Stocks <pad> dropped <pad> .", "Stocks dropped."]
    assert encoder.tokens.pad_id in encoder.tokens(texts)[0][0]
    np.testing.assert_allclose(encoder.embed(texts), padded(encoder, texts), atol=1e-5)


def test_changed_weights_change_the_vectors(tiny, sentences):
    encoder = tiny("t5")
    before = encoder.embed(sentences)
    assert encoder._engine("exact") is encoder._engine("exact")
    with torch.no_grad():
        encoder.tower.backbone.encoder.block[0].layer[1].DenseReluDense.wo.weight.mul_(3)
    after = encoder.embed(sentences)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, padded(encoder, sentences), atol=1e-5)


def test_an_unusual_configuration_is_computed_by_transformers(tiny, sentences):
    encoder = tiny("bert")
    encoder.tower.backbone.config.hidden_act = "silu"
    assert isinstance(encoder._engine("exact"), PaddedEngine)
    with pytest.raises(SettingError, match="precision 'int8': is for models on a CPU"):
        encoder.embed(sentences, precision="int8")
    encoder.tower.backbone.config.hidden_act = "gelu"
    assert isinstance(encoder._engine("exact"), PackedEngine)


def test_equal_texts_are_embedded_once(tiny, sentences, monkeypatch):
    encoder, rows = tiny("t5"), []
    compute = PackedEngine.__call__
    monkeypatch.setattr(PackedEngine, "__call__", lambda self, batch: (rows.extend(batch), compute(self, batch))[1])
    doubled = [*sentences, *reversed(sentences)]
    vectors, stats = encoder.embed_with_stats(doubled)
    assert len(rows) == len(sentences)
    assert stats.num_texts == len(doubled)
    assert stats.num_tokens == 2 * sum(map(len, rows))
    np.testing.assert_array_equal(vectors[: len(sentences)], vectors[: len(sentences) - 1 : -1])


def test_chunks_are_read_one_ahead_and_no_further(tiny, sentences):
    encoder, read = tiny("t5"), []

    def chunks():
        for number in range(10):
            read.append(number)
            yield [f"{number} {text}" for text in sentences]

    embedded = encoder.embed_each(chunks())
    for number in range(3):
        next(embedded)
        assert len(read) <= number + 2


def test_an_encoder_from_a_folder_is_the_same_before_and_after_its_transformer_is_loaded(tiny, sentences, tmp_path):
    for family, readout in (("t5", "encdec-first"), ("bert", "mean")):
        tiny(family, readout=readout, projection=32).save(tmp_path / family)
        encoder = Encoder.load(tmp_path / family, device="cpu")
        before, fingerprint = encoder.embed(sentences), encoder.fingerprint()
        assert {name: weight.shape for name, weight in encoder._tower.weights().items()} == {
            name: weight.shape for name, weight in encoder.tower.weights().items()
        }
        assert encoder.fingerprint() == fingerprint
        np.testing.assert_array_equal(encoder.embed(sentences), before)
        np.testing.assert_allclose(padded(encoder, sentences), before, atol=1e-5)


def test_packed_batches_count_only_the_tokens_that_there_are():
    lengths = [3, 9, 2, 4, 9, 1]
    batches = list(batches_by_length(lengths, max_batch_tokens=12, padded=False))
    assert sorted(i for batch in batches for i in batch) == list(range(6))
    assert [[lengths[i] for i in batch] for batch in batches] == [[9], [9], [4, 3, 2, 1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_keeps_the_mean_and_drops_the_wanted_share(p, dtype):
    x = torch.ones(301, 1001, dtype=dtype, requires_grad=True)
    y = dropout(x, p, training=True)
    dropped = (y == 0).float()
    deviation = (p * (1 - p)) ** 0.5
    assert abs(dropped.mean().item() - p) < 5 * deviation / x.numel() ** 0.5
    for dim in (0, 1):  # no row and no column is favoured
        assert (dropped.mean(dim) - p).abs().max() < 6 * deviation / x.shape[dim] ** 0.5
    assert set(y.detach().unique().tolist()) == {0.0, torch.tensor(1.0, dtype=dtype).div(1 - p).item()}
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert dropout(x, p, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_emulated_bf16_is_not_taken_for_the_machine_s_own(monkeypatch):
    monkeypatch.setattr(linear.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    for has_instructions in (False, True):  # oneDNN says that it has bf16 in both cases, given AVX-512
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda found=has_instructions: found)
        assert linear.has_bf16() is has_instructions
