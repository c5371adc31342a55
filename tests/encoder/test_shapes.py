"""Shapes by name have the true number of parameters."""

import pytest
import torch

from tercet import SettingError
from tercet.encoder.folder.backbone import backbone_class
from tercet.encoder.model.shapes import shape_config, shape_names


def num_parameters(shape: str, *, decoder: bool) -> int:
    config = shape_config(shape)
    with torch.device("meta"):
        model = backbone_class(config.model_type, decoder=decoder)(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("shape", "decoder", "millions"),
    [
        ("t5-small", False, 35.3),
        ("t5-base", False, 109.6),
        ("t5-large", False, 334.9),
        ("t5-3b", False, 1240),
        ("t5-11b", False, 4860),
        ("t5-small", True, 60.5),
        ("t5-base", True, 222.9),
        ("t5-large", True, 737.7),
        ("t5-3b", True, 2850),
        ("t5-11b", True, 11300),
        ("bert-base", False, 109.5),
        ("bert-large", False, 335.1),
        ("roberta-base", False, 124.6),
        ("roberta-large", False, 355.4),
    ],
)
def test_a_shape_has_the_published_number_of_parameters(shape, decoder, millions):
    assert num_parameters(shape, decoder=decoder) / 1e6 == pytest.approx(millions, rel=0.005)


# Counts of the published generators (google/t5-v1_1-base and so on); their output layer is not tied, ours has none.
@pytest.mark.parametrize(
    ("shape", "millions", "vocab_size", "width"),
    [
        ("t5-1.1-small", 76.96, 32128, 512),
        ("t5-1.1-base", 247.58, 32128, 768),
        ("mt5-small", 300.18, 250112, 512),
        ("mt5-base", 582.40, 250112, 768),
        ("byt5-small", 299.64, 384, 1472),
    ],
)
def test_a_gated_shape_is_the_published_generator_less_its_output_layer(shape, millions, vocab_size, width):
    without_output_layer = millions - vocab_size * width / 1e6
    assert num_parameters(shape, decoder=True) / 1e6 == pytest.approx(without_output_layer, rel=0.002)


def test_every_named_shape_has_a_configuration():
    for shape in shape_names():
        assert shape_config(shape, vocab_size=99).vocab_size == 99


def test_t5_1_1_is_gated_and_untied_and_t5_is_neither():
    """transformers keeps whether the output layer is tied as whether its inputs are scaled."""
    first, second = shape_config("t5-base"), shape_config("t5-1.1-base")
    assert (first.is_gated_act, first.scale_decoder_outputs) == (False, True)
    assert (second.is_gated_act, second.scale_decoder_outputs) == (True, False)


def test_an_unknown_shape_is_refused_with_near_matches():
    with pytest.raises(SettingError, match="t5-small"):
        shape_config("t5-smal")
