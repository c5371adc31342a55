"""Embedding: order, independence of batch-mates, precision, dimensions, truncation, broken models."""

import logging
import re

import numpy as np
import pytest
import torch

from tercet import Encoder, InputError, NonFiniteError, SettingError, embed
from tercet.encoder.forward.batches import batches_by_length, pad

FAMILIES = ["t5", "t5-1.1", "mt5", "umt5", "byt5", "bert", "roberta"]


def cosines(a, b):
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_float32_of_length_one_in_input_order(tiny, sentences, family):
    encoder = tiny(family)
    vectors = encoder.embed(sentences)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(sentences), encoder.dim)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(sentences[::-1]), vectors[::-1], atol=1e-6)


@pytest.mark.parametrize(("family", "readout"), [("t5", "enc-mean"), ("t5", "encdec-first"), ("bert", "cls")])
def test_a_vector_does_not_depend_on_its_batch_mates(tiny, sentences, family, readout):
    encoder = tiny(family, readout=readout)
    together = encoder.embed(sentences, max_batch_tokens=100_000)
    alone = np.concatenate([encoder.embed([text]) for text in sentences])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_no_texts_give_no_vectors(tiny):
    encoder = tiny()
    assert encoder.embed([]).shape == (0, encoder.dim)


def test_fast_is_close_to_exact_and_not_equal(tiny, sentences):
    for readout in ("enc-mean", "encdec-first"):
        encoder = tiny(readout=readout)
        exact, fast = encoder.embed(sentences), encoder.embed(sentences, precision="fast")
        assert fast.dtype == np.float32
        assert cosines(exact, fast).min() > 0.999
        assert not np.array_equal(exact, fast)


def test_auto_is_fast_or_exact_and_nothing_else(tiny, sentences):
    encoder = tiny()
    auto = encoder.embed(sentences, precision="auto")
    assert any(np.array_equal(auto, encoder.embed(sentences, precision=name)) for name in ("fast", "exact"))


@pytest.mark.parametrize("family", ["t5", "t5-1.1", "mt5", "umt5", "byt5"])
def test_fp16_is_refused_for_t5_with_the_reason(tiny, family):
    with pytest.raises(SettingError, match="overflows to NaN in fp16"):
        tiny(family).embed(["a"], precision="fp16")


def test_fp16_works_for_bert(tiny, sentences):
    encoder = tiny("bert")
    assert cosines(encoder.embed(sentences), encoder.embed(sentences, precision="fp16")).min() > 0.9999


def test_an_unknown_precision_is_refused(tiny):
    with pytest.raises(SettingError, match="exact, fast"):
        tiny().embed(["a"], precision="half")


def test_dims_truncates_and_scales_to_length_one_again(tiny, sentences):
    encoder = tiny()
    raw = encoder.embed(sentences, normalize=False)[:, :10]
    np.testing.assert_allclose(
        encoder.embed(sentences, dims=10), raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6
    )
    with pytest.raises(SettingError, match=r"Take 1 to 256"):
        encoder.embed(sentences, dims=257)


def test_normalize_overrides_what_the_model_does(tiny, sentences):
    with_length, without = tiny(normalize=False), tiny(normalize=True)
    raw = with_length.embed(sentences)
    assert np.linalg.norm(raw, axis=1).max() > 1.1
    np.testing.assert_allclose(without.embed(sentences, normalize=False), raw, rtol=1e-6)
    np.testing.assert_allclose(with_length.embed(sentences, normalize=True), without.embed(sentences), atol=1e-6)


def test_truncated_texts_are_counted_logged_and_returned(tiny, caplog):
    encoder = tiny(max_tokens=12)
    with caplog.at_level(logging.WARNING, "tercet"):
        vectors, stats = encoder.embed_with_stats(["dogs", "dogs run " * 30, "snow " * 40])
    assert (stats.num_texts, stats.num_truncated) == (3, 2)
    assert stats.num_tokens == 24 + len(encoder.tokens(["dogs"])[0][0])
    assert "2 of 3 texts were cut to 12 tokens" in caplog.text
    assert len(vectors) == 3


def test_truncation_can_be_refused(tiny):
    with pytest.raises(InputError, match="text 1: is longer than 12 tokens"):
        tiny(max_tokens=12).embed(["dogs", "dogs run " * 30], on_truncate="error")


@pytest.mark.parametrize("bad", [[None], ["a", 3], {"text": 1}])
def test_what_is_no_list_of_texts_is_refused(tiny, bad):
    with pytest.raises(InputError):
        tiny().embed(bad)


@pytest.mark.parametrize(
    ("readout", "layer"),
    [
        ("enc-mean", "backbone.encoder.block.2.layer.1.DenseReluDense.wo"),
        ("encdec-first", "backbone.decoder.block.1.layer.2.DenseReluDense.wi"),
    ],
)
def test_a_vector_that_is_not_finite_is_an_error_that_names_the_first_layer(tiny, sentences, readout, layer):
    encoder = tiny(readout=readout)
    with torch.no_grad():
        encoder.tower.get_submodule(layer).weight[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match=re.escape(f"in {layer}. ")):
        encoder.embed(sentences)


def test_encode_is_embed_with_the_arguments_that_other_tools_give(tiny, sentences):
    encoder = tiny()
    vectors = encoder.embed(sentences)
    np.testing.assert_array_equal(encoder.encode(sentences, batch_size=2, show_progress_bar=False), vectors)
    np.testing.assert_array_equal(encoder.encode(sentences, convert_to_tensor=True).numpy(), vectors)
    assert encoder.encode(sentences[0]).shape == (encoder.dim,)


def test_similarity_is_the_cosine_of_all_pairs(tiny, sentences):
    encoder = tiny(normalize=False)
    a, b = encoder.embed(sentences[:3]), encoder.embed(sentences[3:])
    expected = [[cosines(x, y) for y in b] for x in a]
    np.testing.assert_allclose(encoder.similarity(sentences[:3], sentences[3:]), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.similarity(a, b), expected, atol=1e-5)


def test_the_same_seed_makes_the_same_fresh_model_and_leaves_torchs_own_seed_alone(tiny, sentences):
    torch.manual_seed(5)
    first = tiny(seed=1).embed(sentences)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), after)
    np.testing.assert_array_equal(first, tiny(seed=1).embed(sentences))
    assert not np.allclose(first, tiny(seed=2).embed(sentences))


def test_the_fingerprint_changes_with_weights_and_settings_only(tiny):
    encoder = tiny()
    prints = {tiny(prompt="gense").fingerprint(), tiny(max_tokens=32).fingerprint(), tiny(seed=9).fingerprint()}
    assert encoder.fingerprint() == tiny().fingerprint()
    assert len(prints | {encoder.fingerprint()}) == 4


def test_the_fingerprint_knows_the_shape_and_the_activations(tiny):
    encoder = tiny("bert", projection=16)
    before = encoder.fingerprint()
    encoder.tower.backbone.config.hidden_act = "relu"
    changed = encoder.fingerprint()
    encoder.tower.head.dense[0].activation = "tanh"
    assert len({before, changed, encoder.fingerprint()}) == 3


def test_a_call_of_the_tokenizer_by_somebody_else_changes_nothing(tiny, sentences):
    encoder = tiny()
    before = encoder.embed(sentences)
    encoder.tokens.tokenizer(sentences, padding=True, truncation=True, max_length=4)
    np.testing.assert_array_equal(encoder.embed(sentences), before)


def test_embedding_leaves_a_tower_in_training_as_it_was(tiny):
    encoder = tiny()
    encoder.tower.train()
    first, second = encoder.embed(["dogs run"]), encoder.embed(["dogs run"])
    np.testing.assert_array_equal(first, second)
    assert encoder.tower.training


def test_encode_refuses_what_it_would_not_do(tiny):
    with pytest.raises(SettingError, match="'output_value'"):
        tiny().encode(["a"], output_value="token_embeddings")
    assert tiny().encode(["a"], prompt=None, prompt_name=None).shape == (1, 256)
    assert tiny().encode(["a"], truncate_dim=5).shape == (1, 5)


def test_batches_hold_texts_of_like_length_under_the_budget():
    lengths = [3, 50, 7, 7, 1, 20, 200, 2]
    batches = list(batches_by_length(lengths, max_batch_tokens=60))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 60
    flat = [lengths[i] for batch in batches for i in batch]
    assert flat == sorted(lengths, reverse=True)


def test_padding_is_masked():
    ids, mask = pad([[5, 6, 7], [8]], pad_id=9)
    assert ids.tolist() == [[5, 6, 7], [8, 9, 9]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_an_unknown_setting_is_refused(tiny):
    with pytest.raises(TypeError, match="'pooling'"):
        Encoder.load("minilm", pooling="mean")
    with pytest.raises(SettingError, match=r"encoder\.pooling: there is no such setting\. Known here: readout"):
        embed(["a"], model={"model": "minilm", "encoder": {"pooling": "mean"}})
    with pytest.raises(SettingError, match="max_tokens 0: "):
        Encoder.load("minilm", max_tokens=0)
