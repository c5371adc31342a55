"""A T5 with its head, read and written: fresh decoders, some of its layers, weights in 16 bits."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM

from tercet import Encoder, ModelError, SettingError, Synthesizer
from tercet.encoder.generator import load_generator, save_generator


def test_an_encoder_alone_gets_a_fresh_decoder(tiny, tmp_path):
    encoder = tiny("t5")
    encoder.save(tmp_path / "encoder")
    with pytest.raises(ModelError, match=r"decoder\S+ first\. Take a whole T5, or set decoder_layers"):
        load_generator(str(tmp_path / "encoder"))
    one, other, again = (
        load_generator(str(tmp_path / "encoder"), decoder_layers=2, seed=seed)[0] for seed in (1, 2, 1)
    )
    own = encoder.tower.backbone.encoder.state_dict()
    assert own.keys() == one.encoder.state_dict().keys()
    assert all(torch.equal(weight, own[name]) for name, weight in one.encoder.state_dict().items())
    assert len(one.decoder.block) == 2
    first = "decoder.block.0.layer.0.SelfAttention.q.weight"
    assert torch.equal(one.state_dict()[first], again.state_dict()[first])
    assert not torch.equal(one.state_dict()[first], other.state_dict()[first])
    assert one.generate(input_ids=torch.tensor([[5, 6, 1]]), max_new_tokens=3).shape[0] == 1


@pytest.mark.parametrize("scale", [0.05, 1.0])
def test_a_fresh_decoder_scores_words_alike_whatever_the_scale_of_the_table(tiny, tmp_path, scale):
    encoder = tiny("t5")
    with torch.no_grad():
        table = encoder.tower.backbone.shared.weight
        table.mul_(scale / table.std())
    encoder.save(tmp_path / "encoder")
    model, _ = load_generator(str(tmp_path / "encoder"), decoder_layers=1)
    ids = torch.tensor([[5, 6, 7, 1]])
    with torch.no_grad():
        spread = model.eval()(input_ids=ids, decoder_input_ids=ids).logits.std(-1)
    assert 0.5 < spread.min() < spread.max() < 2


def test_fewer_layers_are_the_first_ones(synthesizer_folder):
    whole, _ = load_generator(str(synthesizer_folder()))
    part, _ = load_generator(str(synthesizer_folder()), decoder_layers=1)
    assert len(part.decoder.block) == 1 < len(whole.decoder.block)
    weights = whole.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in part.state_dict().items())


def test_an_encoder_keeps_the_layers_that_are_named(tmp_path, synthesizer_folder):
    whole, tokenizer = load_generator(str(synthesizer_folder()))
    part, _ = load_generator(str(synthesizer_folder()), encoder_layers=[0, 2, 3])
    assert part.config.num_layers == 3
    assert len(whole.encoder.block) == 4
    for kept, own in zip(part.encoder.block, [whole.encoder.block[i] for i in (0, 2, 3)], strict=True):
        assert all(torch.equal(weight, own.state_dict()[name]) for name, weight in kept.state_dict().items())
    save_generator(part, tokenizer, tmp_path / "part")
    again, _ = load_generator(str(tmp_path / "part"))
    ids = torch.tensor([[5, 6, 7, 1]])
    with torch.no_grad():
        logits = [model.eval()(input_ids=ids, decoder_input_ids=ids).logits for model in (part, again, whole)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])


@pytest.mark.parametrize("layers", [[], [1], [0, 9], [1, 0], [0, 0]])
def test_layers_that_an_encoder_does_not_have_are_refused(synthesizer_folder, layers):
    with pytest.raises(SettingError, match=r"encoder_layers \[.*\]: the encoder has the layers 0 to 3\. Name some"):
        load_generator(str(synthesizer_folder()), encoder_layers=layers)


def test_weights_in_16_bits_are_computed_in_32(synthesizer_folder, tmp_path):
    model, tokenizer = load_generator(str(synthesizer_folder()))
    for dtype in (torch.float32, torch.float16):
        save_generator(model, tokenizer, tmp_path / str(dtype), dtype=dtype)
    small, whole = (tmp_path / str(dtype) / "model.safetensors" for dtype in (torch.float16, torch.float32))
    assert small.stat().st_size < 0.55 * whole.stat().st_size  # the table and the head are one
    again = AutoModelForSeq2SeqLM.from_pretrained(small.parent)
    assert again.dtype == torch.float32
    for name, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight.half().float())


@pytest.mark.parametrize("family", ["t5", "t5-1.1"])
def test_weights_in_eight_bits_are_read_back_within_half_a_step_of_each_row(synthesizer_folder, tmp_path, family):
    model, tokenizer = load_generator(str(synthesizer_folder(family)))
    save_generator(model, tokenizer, tmp_path / "small", dtype=torch.int8)
    save_generator(model, tokenizer, tmp_path / "large")
    again, _ = load_generator(str(tmp_path / "small"))
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        step = weight.abs().amax(-1, keepdim=True) / 127 if weight.ndim == 2 else 0 * weight
        assert bool(((again.state_dict()[name] - weight).abs() <= step * 0.5 + 1e-7).all()), name
    tied = {each.lm_head.weight.data_ptr() == each.shared.weight.data_ptr() for each in (model, again)}
    assert tied == {family == "t5"}
    sizes = [
        sum(file.stat().st_size for file in (tmp_path / name).glob("*.safetensors")) for name in ("small", "large")
    ]
    assert sizes[0] < 0.3 * sizes[1]
    with pytest.raises(OSError, match="no file named"):  # and does not take integers for weights
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small")


def test_a_model_in_eight_bits_writes_judges_and_embeds(synthesizer_folder, tmp_path):
    model, tokenizer = load_generator(str(synthesizer_folder("t5")))
    save_generator(model, tokenizer, tmp_path / "small", dtype=torch.int8)
    whole, small = (
        Synthesizer.load(folder, precision="exact") for folder in (synthesizer_folder("t5"), tmp_path / "small")
    )
    pairs = ["A man plays a guitar."], ["Somebody makes music."]
    assert small.score(*pairs) == pytest.approx(whole.score(*pairs), abs=0.02)
    assert len(small.generate(pairs[0], relation="title")) == 1
    vectors = [
        Encoder.load(folder, readout="enc-mean").embed(pairs[0])
        for folder in (synthesizer_folder("t5"), tmp_path / "small")
    ]
    assert float((vectors[0] * vectors[1]).sum()) > 0.99


def test_eight_bits_without_a_scale_are_refused(synthesizer_folder, tmp_path):
    model, tokenizer = load_generator(str(synthesizer_folder("t5")))
    save_generator(model, tokenizer, tmp_path, dtype=torch.int8)
    weights = load_file(tmp_path / "model.int8.safetensors")
    del weights["shared.weight.scale"]
    save_file(weights, tmp_path / "model.int8.safetensors")
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(ModelError, match=r"cannot be read \(shared\.weight has no scale for each row\)"):
        load_generator(str(tmp_path))
