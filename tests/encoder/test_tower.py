"""Readouts, dense layers and normalisation, each against a computation written out here."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tercet import SettingError
from tercet.encoder.model.arrays import unit
from tercet.encoder.model.readouts import READOUTS, check_readout
from tercet.encoder.model.tower import unit_length


def batch():
    ids = torch.randint(3, 90, (3, 7), generator=torch.Generator().manual_seed(3))
    mask = torch.tensor([[1] * n + [0] * (7 - n) for n in (7, 2, 5)])
    return ids * mask, mask


def hidden_states(encoder, ids, mask):
    backbone = encoder.tower.backbone
    backbone = backbone.encoder if hasattr(backbone, "decoder") else backbone
    return backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states


def masked_mean(hidden, mask):
    return torch.stack([row[: int(length)].mean(0) for row, length in zip(hidden, mask.sum(1), strict=True)])


EXPECTED = {
    "first": lambda layers, mask: layers[-1][:, 0],
    "mean": lambda layers, mask: masked_mean(layers[-1], mask),
    "first-last-mean": lambda layers, mask: (masked_mean(layers[1], mask) + masked_mean(layers[-1], mask)) / 2,
    "embedding-last-mean": lambda layers, mask: (masked_mean(layers[0], mask) + masked_mean(layers[-1], mask)) / 2,
    "top2-mean": lambda layers, mask: (masked_mean(layers[-2], mask) + masked_mean(layers[-1], mask)) / 2,
}


@pytest.mark.parametrize(
    ("family", "readout", "expected"),
    [
        ("t5", "enc-first", "first"),
        ("t5", "enc-mean", "mean"),
        ("t5", "first-last-mean", "first-last-mean"),
        ("t5-1.1", "top2-mean", "top2-mean"),
        ("bert", "cls", "first"),
        ("bert", "mean", "mean"),
        ("bert", "first-last-mean", "first-last-mean"),
        ("bert", "embedding-last-mean", "embedding-last-mean"),
        ("roberta", "top2-mean", "top2-mean"),
    ],
)
def test_a_readout_is_what_its_name_says(tiny, family, readout, expected):
    encoder, (ids, mask) = tiny(family, size="mini", readout=readout, normalize=False), batch()
    with torch.no_grad():
        wanted = EXPECTED[expected](hidden_states(encoder, ids, mask), mask)
        torch.testing.assert_close(encoder.tower(ids, mask), wanted, atol=1e-6, rtol=1e-5)


def test_the_last_layer_of_a_t5_is_the_one_behind_the_final_norm(tiny):
    encoder, (ids, mask) = tiny("t5", readout="enc-mean"), batch()
    backbone = encoder.tower.backbone
    with torch.no_grad():
        output = backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    torch.testing.assert_close(output.hidden_states[-1], output.last_hidden_state)
    torch.testing.assert_close(output.hidden_states[0], backbone.get_input_embeddings()(ids))


def test_projection_has_no_bias_and_comes_before_normalisation(tiny):
    encoder, (ids, mask) = tiny("t5", readout="enc-mean", projection=24), batch()
    plain = tiny("t5", readout="enc-mean", normalize=False)
    with torch.no_grad():
        projected = plain.tower(ids, mask) @ encoder.tower.head.dense[0].linear.weight.T
        torch.testing.assert_close(encoder.tower(ids, mask), F.normalize(projected, dim=-1), atol=1e-6, rtol=1e-5)
    assert encoder.tower.head.dense[0].linear.bias is None
    assert encoder.dim == 24


def test_the_mlp_of_cls_mlp_is_a_dense_layer_with_tanh(tiny):
    encoder, (ids, mask) = tiny("bert", readout="cls-mlp", normalize=False), batch()
    plain = tiny("bert", readout="cls", normalize=False)
    linear = encoder.tower.head.mlp.linear
    with torch.no_grad():
        wanted = torch.tanh(plain.tower(ids, mask) @ linear.weight.T + linear.bias)
        torch.testing.assert_close(encoder.tower(ids, mask), wanted)


def test_an_mlp_for_training_only_is_used_in_training_only(tiny):
    encoder, (ids, mask) = tiny("bert", readout="cls-mlp", mlp="training", normalize=False), batch()
    plain = tiny("bert", readout="cls", normalize=False)
    with torch.no_grad():
        torch.testing.assert_close(encoder.tower(ids, mask), plain.tower(ids, mask))
        for tower in (encoder.tower, plain.tower):
            tower.train()
            for module in tower.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
        in_training = encoder.tower.head.mlp(plain.tower(ids, mask))
        torch.testing.assert_close(encoder.tower(ids, mask), in_training)


def test_mean_and_cls_have_their_t5_names_on_a_t5():
    assert check_readout("mean", "t5") == "enc-mean"
    assert check_readout("cls", "umt5") == "enc-first"
    assert check_readout("mean", "bert") == "mean"


def test_a_t5_readout_on_bert_is_refused():
    with pytest.raises(SettingError, match=r"encdec-first.*bert"):
        check_readout("encdec-first", "bert")


def test_an_unknown_readout_is_refused_with_the_known_ones():
    with pytest.raises(SettingError, match="enc-mean"):
        check_readout("average", "t5")


def test_the_readouts_have_their_fixed_names():
    names = "enc-first enc-mean encdec-first cls cls-mlp mean first-last-mean embedding-last-mean top2-mean"
    assert list(READOUTS) == names.split()


def test_arrays_and_tensors_are_scaled_to_length_1_alike_and_zeros_stay_zeros():
    vectors = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    vectors[1] = 0
    vectors[2] *= 1e-9
    scaled = unit(vectors)
    np.testing.assert_allclose(scaled, unit_length(torch.from_numpy(vectors)).numpy(), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1)[[0, 3]], 1, rtol=1e-6)
    assert not scaled[1].any() and scaled.dtype == np.float32
    assert unit(vectors.astype(np.float64)).dtype == np.float64
    assert not unit_length(torch.zeros(1, 3, dtype=torch.float16)).any()
