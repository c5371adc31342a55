"""How much goes through a model at once on a GPU, whose memory is faked; weights are on the meta device."""

from types import SimpleNamespace

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, T5EncoderModel, T5ForConditionalGeneration

from tercet.encoder.forward.memory import room_on, token_bytes, tokens_at_once, trained_tokens_at_once
from tercet.encoder.model.shapes import shape_config
from tercet.encoder.model.tower import Head, Tower
from tercet.training.objectives.compute import ComputeSettings, cut
from tercet.training.objectives.conditional import ConditionalSettings

CPU, GPU = torch.device("cpu"), torch.device("cuda")
GB = 10**9


@pytest.fixture
def memory(monkeypatch):
    """Return a function that gives the machine a GPU with so much memory."""

    def give(num_gb):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=num_gb * GB))

    return give


def model_of(shape, *, whole=False):
    with torch.device("meta"):
        return (T5ForConditionalGeneration if whole else T5EncoderModel)(shape_config(shape))


class OnGpu(Tower):
    """A tower without values whose device is said to be a GPU."""

    device = GPU


def tower_of(shape):
    return OnGpu(model_of(shape), Head("enc-mean", 768))


def numbers(model):
    return model.config.to_dict(), sum(parameter.numel() for parameter in model.parameters())


def test_a_cpu_has_the_usual_numbers(tiny):
    config, num = numbers(model_of("t5-base"))
    assert room_on(CPU, num, trained=True) is None
    assert tokens_at_once(config, num, CPU, usual=2048) == trained_tokens_at_once(config, num, CPU, usual=2048) == 2048
    tower = tiny("t5").tower
    assert ComputeSettings().activation_bytes(tower) == 2 * GB
    assert ComputeSettings().word_tokens(tower) == 2048 == tiny("t5").batch_tokens(None)
    assert cut([9] * 1000, tower, compute=ComputeSettings()) == cut(
        [9] * 1000, tower, compute=ComputeSettings(max_batch_tokens=2048, max_activation_gb=2.0)
    )


def test_weights_and_what_they_are_trained_with_are_taken_off_a_gpu_s_memory(memory):
    memory(80)
    assert room_on(GPU, GB, trained=False) == 64 * GB - 4 * GB
    assert room_on(GPU, GB, trained=True) == 64 * GB - 16 * GB
    assert room_on(GPU, 11 * GB, trained=True) == 0


def test_more_memory_holds_more_tokens_and_a_larger_model_fewer(memory):
    found = {}
    for shape in ("t5-base", "t5-large", "t5-3b"):
        config, num = numbers(model_of(shape))
        for num_gb in (16, 80):
            memory(num_gb)
            room = 0.8 * num_gb * GB - 4 * num
            found[shape, num_gb] = tokens_at_once(config, num, GPU, usual=2048)
            assert found[shape, num_gb] * token_bytes(config, 512) <= room
            assert (found[shape, num_gb] + 1) * token_bytes(config, 512) > room
            assert trained_tokens_at_once(config, num, GPU, usual=256) < found[shape, num_gb]
            assert tokens_at_once(config, num, GPU, usual=2048, writes=True) < found[shape, num_gb]
    assert found["t5-base", 80] > found["t5-base", 16] > found["t5-large", 16] > found["t5-3b", 16] > 2048


def test_a_batch_is_cut_by_the_memory_of_a_gpu_unless_numbers_are_given(memory):
    tower, lengths = tower_of("t5-base"), [64] * 2000
    memory(80)
    roomy = cut(lengths, tower, compute=ComputeSettings())
    memory(16)
    tight = cut(lengths, tower, compute=ComputeSettings())
    assert len(roomy) < len(tight)
    assert sum(piece.kept for piece in roomy) / len(roomy) > sum(piece.kept for piece in tight) / len(tight)
    given = cut(lengths, tower, compute=ComputeSettings(max_batch_tokens=640))
    assert {len(piece.rows) for piece in given} == {10}
    assert ComputeSettings(max_activation_gb=3).activation_bytes(tower) == 3 * GB
    largest = cut(lengths, tower, compute=ComputeSettings())[0]
    assert len(largest.rows) * 64 * token_bytes(tower.config, 64) * 12 <= 16 * GB


def test_a_stage_on_a_gpu_has_the_key_that_it_has_on_a_cpu():
    """Null stands for the numbers that were the defaults before, so stages of earlier runs are done still."""
    from tercet.training.pipeline import _usual

    assert _usual(ComputeSettings()) == {"max_batch_tokens": 2048, "max_activation_gb": 2.0}
    assert _usual(ConditionalSettings())["max_batch_tokens"] == 4096


@pytest.mark.parametrize("family", ["marian", "t5"])
def test_a_translator_reads_as_much_as_the_memory_of_a_gpu_holds_for_all_beams(memory, monkeypatch, family):
    from tercet.synthesis.translation import Translator

    sizes = {"d_model": 512, "encoder_ffn_dim": 2048, "encoder_layers": 6, "encoder_attention_heads": 8}
    with torch.device("meta"):
        model = MarianMTModel(MarianConfig(**sizes)) if family == "marian" else model_of("t5-base", whole=True)
    translator, found = Translator(model, None, ""), {}
    monkeypatch.setattr(type(model), "device", GPU)
    for num_gb in (40, 80):
        memory(num_gb)
        found[num_gb] = [translator.max_batch_tokens(beams) for beams in (4, 8)]
    assert found[80][0] > found[40][0] > found[40][1] > 2048
    assert found[80][0] == pytest.approx(2 * found[80][1], abs=1)
    assert found[80][0] == pytest.approx(2 * found[40][0], rel=0.02)
    monkeypatch.setattr(type(model), "device", CPU)
    assert translator.max_batch_tokens(4) == 2048
