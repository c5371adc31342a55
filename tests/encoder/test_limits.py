"""What a model folder may ask for: no more than its files hold, within seconds and little memory."""

import json
import os
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from tercet import Encoder, ModelError, verify


@pytest.fixture(scope="module")
def saved(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tiny("t5").save(folder / "t5")
    tiny("t5", readout="encdec-first").save(folder / "both")
    tiny("bert", readout="mean").save(folder / "bert")
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    """Return a function that copies a model, without its manifest: as one that somebody else made."""

    def make(name="t5"):
        shutil.copytree(saved / name, tmp_path / name)
        (tmp_path / name / "SHA256SUMS").unlink()
        return tmp_path / name

    return make


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def refused(folder, message, **options):
    start_s = time.process_time()
    with pytest.raises(ModelError, match=message):
        Encoder.load(folder, device="cpu", **options)
    assert time.process_time() - start_s < 2


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("t5", {"num_layers": 1}),
        ("both", {"num_decoder_layers": 1}),
        ("both", {"num_layers": 2, "num_decoder_layers": 4}),
        ("bert", {"num_hidden_layers": 1}),
    ],
)
def test_layers_that_a_configuration_does_not_use_are_an_error(copy, name, values):
    folder = copy(name)
    change(folder / "config.json", **values)
    refused(folder, r"weights are not used by its config.json, (en|de)coder\.")


def test_layers_are_missed_in_models_that_transformers_reads_too(copy):
    folder = copy("bert")
    weights = load_file(folder / "model.safetensors")
    save_file({f"bert.{name}": weight for name, weight in weights.items()}, folder / "model.safetensors")
    Encoder.load(folder, device="cpu")
    change(folder / "config.json", num_hidden_layers=1)
    with pytest.raises(ModelError, match="weights are not used"):
        Encoder.load(folder, device="cpu")


def test_a_decoder_that_a_readout_does_not_read_is_no_error(copy):
    assert Encoder.load(copy("both"), readout="enc-mean", prompt=None).embed(["a"]).shape == (1, 256)


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("name", ["encoder.layer.0.output.dense.weight", "embeddings.word_embeddings.weight"])
def test_weights_that_are_integers_are_an_error(copy, name, prefix):
    folder = copy("bert")
    weights = load_file(folder / "model.safetensors")
    weights[name] = (weights[name] * 100).to(torch.int8)
    save_file({prefix + key: weight for key, weight in weights.items()}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=rf"the weight {prefix}{name} is stored as int8"):
        Encoder.load(folder, device="cpu")


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}], "pair": []}
            | {"special_tokens": {}},
            "its tokenizer contradicts itself|no tokenizer can be read",
        ),
        ({"type": "BertProcessing", "sep": ["[SEP]", 99999], "cls": ["[CLS]", 2]}, "gives the token 99,999"),
    ],
)
def test_special_tokens_that_are_not_there_are_an_error_before_a_text_is_read(copy, processor, message):
    folder = copy("bert")
    change(folder / "tokenizer.json", post_processor=processor)
    refused(folder, message)


@pytest.mark.parametrize("length", ["x", "", [], True])
@pytest.mark.parametrize("name", ["t5", "bert"])
def test_a_tokenizer_s_length_that_is_no_number_is_refused(copy, name, length):
    folder = copy(name)
    change(folder / "tokenizer_config.json", model_max_length=length)
    refused(folder, r"tokenizer_config\.json: model_max_length is '.*'\. It has to be a number")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_layers": 10**9}, r"num_layers is 1000000000\. It has to be a number from 1 to 1,024"),
        ({"num_layers": 1000}, "describes a model of .* weights or more, and its weights have"),
        ({"d_model": -1}, "d_model is -1"),
        ({"d_model": "256"}, "d_model is 256"),
        ({"num_heads": 0}, "num_heads is 0"),
        ({"num_heads": True}, "num_heads is True"),
        ({"vocab_size": 10**7}, "describes a model of"),
        ({"relative_attention_max_distance": 0}, "relative_attention_max_distance is 0"),
        ({"relative_attention_max_distance": 4}, "give no positions"),
        ({"relative_attention_num_buckets": 1}, "give no positions"),
        ({"layer_norm_epsilon": None, "dropout_rate": 7}, "dropout_rate is 7"),
        ({"layer_norm_epsilon": -1.0}, "layer_norm_epsilon is -1.0"),
        ({"decoder_start_token_id": True}, r"decoder_start_token_id is True\. It has to be the number of a token"),
        ({"decoder_start_token_id": 10**6}, "decoder_start_token_id is 1000000"),
        ({"pad_token_id": [0]}, r"pad_token_id is \[0\]"),
        ({"vocab_size": 100}, "the tokenizer has .* tokens, and the model 100: it is another model's"),
    ],
)
def test_a_configuration_that_nothing_can_be_computed_with_is_named(copy, values, message):
    folder = copy()
    change(folder / "config.json", **values)
    if values == {"vocab_size": 100}:
        weights = load_file(folder / "model.safetensors")
        save_file({**weights, "shared.weight": weights["shared.weight"][:100].clone()}, folder / "model.safetensors")
    refused(folder, message)


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "model.safetensors", "modules.json"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_device_or_a_pipe_in_a_model_s_folder_is_not_read(copy, name, kind):
    folder = copy()
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    refused(folder, rf"{name}: is no file, but a device or a pipe")


def doubling(times):
    return {
        "type": "Sequence",
        "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * times,
    }


def test_a_tokenizer_that_doubles_every_text_many_times_is_refused(copy):
    folder = copy()
    change(folder / "tokenizer.json", normalizer=doubling(40))
    refused(folder, "its normaliser makes a text up to .* times as long")
    change(folder / "tokenizer.json", normalizer={**doubling(1), "normalizers": [doubling(5), doubling(5)]})
    refused(folder, "its normaliser makes a text up to 1,024 times as long")
    change(folder / "tokenizer.json", normalizer=doubling(2))
    assert Encoder.load(folder, device="cpu").embed(["a"]).shape == (1, 256)


@pytest.mark.parametrize("content", ["null", "[]", "3", '"a"', "[" * 500 + "]" * 500, "1" * 5000])
@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer_config.json", "modules.json", "sentence_bert_config.json"],
)
def test_a_json_file_of_another_kind_is_an_error_that_names_it(copy, name, content):
    folder = copy()
    (folder / name).write_text(content)
    if (name, content) == ("modules.json", "[]"):
        refused(folder, "does not start with a transformer")
    else:
        refused(folder, rf"{name}: is not JSON \(")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "modules.json"])
def test_a_file_that_is_not_as_the_manifest_says_is_named(saved, tmp_path, name):
    folder = tmp_path / "t5"
    shutil.copytree(saved / "t5", folder)
    assert Encoder.load(folder, device="cpu").embed(["a"]).shape == (1, 256)
    (folder / name).write_text((folder / name).read_text() + " ")
    refused(folder, rf"{name}: is not as it was written")
    (folder / "SHA256SUMS").write_text("nonsense")
    refused(folder, "SHA256SUMS: is damaged itself")


@pytest.fixture
def large(saved, tmp_path, monkeypatch):
    """Return the weights of a model, with its manifest, that count as large, and what is embedded with them."""
    monkeypatch.setattr("tercet.encoder.folder.limits._MAX_CHECKED_BYTES", 100_000)
    folder = shutil.copytree(saved / "bert", tmp_path / "large")
    return folder / "model.safetensors", Encoder.load(folder).embed(["A man is playing.", "x"])


@pytest.mark.parametrize("change", [lambda x: x[:-1], lambda x: x + b"\0", lambda x: x[:150_000]])
def test_large_weights_of_another_size_are_refused(large, change):
    file, _ = large
    file.write_bytes(change(file.read_bytes()))
    refused(file.parent, "the weights cannot be read")


def test_a_flipped_bit_in_the_header_of_large_weights_never_gives_other_vectors(large):
    file, wanted = large
    good, num_refused = file.read_bytes(), 0
    places = range(0, 8 + int.from_bytes(good[:8], "little"), 37)
    for number, place in enumerate(places):
        content = bytearray(good)
        content[place] ^= 1 << number % 8
        file.write_bytes(content)
        try:
            assert (Encoder.load(file.parent).embed(["A man is playing.", "x"]) == wanted).all()
        except ModelError:
            num_refused += 1
    assert len(places) > 100 and num_refused > 0.95 * len(places)


def test_a_flipped_bit_among_the_numbers_is_found_at_once_or_by_verify(large, monkeypatch):
    file, _ = large
    content = bytearray(file.read_bytes())
    content[-1000] ^= 1
    file.write_bytes(content)
    Encoder.load(file.parent)
    assert verify(file.parent).damaged == {str(file): "is not as it was written"}
    monkeypatch.undo()
    refused(file.parent, r"model\.safetensors: is not as it was written")


def test_a_text_of_ten_million_letters_is_cut_before_it_is_tokenised(tiny):
    encoder = tiny("t5")
    start_s = time.process_time()
    vectors, stats = encoder.embed_with_stats(["word " * 2_000_000, " " * 200_000 + "x"])
    assert time.process_time() - start_s < 2
    assert stats.num_truncated == 2
    assert (vectors[0] == encoder.embed(["word " * 1000])[0]).all()
