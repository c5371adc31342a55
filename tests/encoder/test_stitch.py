"""A T5 made of a BERT's layers, against the BERT itself as transformers computes it."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from transformers import T5Tokenizer

from tercet import Encoder, InputError, SettingError
from tercet.encoder.forward.bert import BertShape, PackedBert
from tercet.encoder.forward.linear import Prepared, Trainable
from tercet.encoder.forward.pack import Pack
from tercet.encoder.model.pieces import keep_words
from tercet.encoder.stitch import _narrow, _piece_vectors, _read_by, stitch
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe

WHO = ("a man", "somebody", "two dogs", "the stock market", "a crowd", "a third one", "it")
WHAT = ("is playing a guitar", "fell sharply", "run through deep snow", "plays an instrument", "is waiting for them")
WHERE = ("on the stage", "on monday", "in front of a crowd", "near the old wooden fence", "by the river", "for them")
TEXTS = [f"{who} {what} {where}." for who in WHO for what in WHAT for where in WHERE]
HELD_OUT, SAMPLE = TEXTS[::5], [text for i, text in enumerate(TEXTS) if i % 5]


@pytest.fixture(scope="module")
def bert(tiny):
    """A BERT whose biases and norms are not 0 and 1, and whose layers change more than fresh ones do."""
    encoder = tiny("bert", readout="mean", prompt="query: [X]")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in encoder.tower.backbone.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "LayerNorm.weight" in name:
                parameter.copy_(0.6 + 0.1 * noise)
            else:
                parameter.copy_(noise * (0.3 if "word_embeddings" in name else 0.02 if "embeddings" in name else 0.1))
    return encoder


@pytest.fixture(scope="module")
def words():
    """A T5's tokenizer with a piece for each word."""
    pieces = [f"▁{word}" for word in sorted({word for text in TEXTS for word in text.rstrip(".").split()})]
    return T5Tokenizer(vocab=[(piece, 0.0) for piece in ("<pad>", "</s>", "<unk>", *pieces, ".")], extra_ids=1)


def centred(vectors):
    vectors = vectors - vectors.mean(0)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def likeness(one, other):
    return float((centred(one) * centred(other)).sum(1).mean())


@pytest.mark.parametrize("make", [Trainable(), Prepared(torch.float32)])
def test_the_states_of_a_bert_are_those_of_transformers(bert, make):
    backbone, rows = bert.tower.backbone, bert.tokens(SAMPLE[:5])[0]
    model = PackedBert(BertShape.read(bert.tower.config).without_dropout(), bert.tower.weights(), make)
    attended: list[torch.Tensor] = []
    hooks = [
        layer.attention.register_forward_hook(lambda _module, _inputs, output: attended.append(output[0][0]))
        for layer in backbone.encoder.layer
    ]
    for row in rows:
        attended.clear()
        with torch.no_grad():
            layers = backbone(torch.tensor([row]), output_hidden_states=True).hidden_states
            found = [*model.states(Pack.of([row]))]
        wanted = [layers[0][0]]
        for behind_attention, layer in zip(attended, layers[1:], strict=True):
            wanted += [behind_attention, layer[0]]
        assert len(found) == len(wanted) == 5
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    for hook in hooks:
        hook.remove()


def test_a_layer_with_a_bias_is_read_from_a_stream_without():
    generator = torch.Generator().manual_seed(0)
    stream = torch.randn(500, 8, generator=generator)
    stream[:, 7] = 1.0  # the part that all tokens share
    change, shift = torch.randn(8, 8, generator=generator), torch.randn(8, generator=generator)
    layer = nn.Linear(8, 3)
    (weight,) = _read_by(stream, stream @ change + shift, layer.state_dict(prefix="up."), ["up"])
    with torch.no_grad():
        torch.testing.assert_close(stream @ weight.T, layer(stream @ change + shift), atol=0.02, rtol=0.02)


def test_a_piece_starts_as_the_mean_of_the_tokens_that_spell_it(bert, t5_tokenizer):
    own = bert.tokens.tokenizer
    table = torch.randn(len(own), 4)
    vectors = _piece_vectors(table, bert.tokens, t5_tokenizer)
    assert len(vectors) == len(t5_tokenizer)

    def spelled(*tokens):
        return table[own.convert_tokens_to_ids([*tokens])].mean(0)

    def found(piece):
        return vectors[t5_tokenizer.convert_tokens_to_ids(piece)]

    torch.testing.assert_close(found("▁instrument"), spelled("instrument"))
    torch.testing.assert_close(found("</s>"), spelled("[SEP]"))
    torch.testing.assert_close(found("<extra_id_0>"), spelled("[UNK]"))
    torch.testing.assert_close(found("e"), spelled("##e"))
    torch.testing.assert_close(found("ing"), spelled("in", "##g"))


def test_a_piece_of_wordpiece_starts_as_the_token_of_its_name(bert):
    own = bert.tokens.tokenizer
    words = keep_words(own, TEXTS, num_pieces=10_000, num_sentinels=1)
    table = torch.randn(len(own), 4)
    vectors = _piece_vectors(table, bert.tokens, words)
    for name in ("instrument", "##e", "e", "##g"):
        torch.testing.assert_close(vectors[words.convert_tokens_to_ids(name)], table[own.convert_tokens_to_ids(name)])
    torch.testing.assert_close(vectors[words.eos_token_id], table[own.sep_token_id])


@pytest.mark.parametrize("layers", [[0, 1], [1]])
def test_a_t5_of_a_berts_layers_does_nearly_as_the_bert_does(bert, words, tiny, layers):
    made = stitch(bert, words, layers=layers, texts=SAMPLE)
    assert made.tower.backbone.config.model_type == "t5"
    assert made.tower.backbone.config.num_layers == len(layers)
    wanted = bert.embed(HELD_OUT)
    assert likeness(made.embed(HELD_OUT), wanted) > 0.9
    assert likeness(tiny("t5", projection=128).embed(HELD_OUT), wanted) < 0.3


def test_a_narrowed_feed_forward_makes_the_product_out_of_fewer_numbers():
    generator = torch.Generator().manual_seed(0)
    free, weight = torch.randn(500, 6, generator=generator), torch.randn(5, 10, generator=generator)
    hidden = torch.cat([free, 0.1 * free[:, :2] @ torch.randn(2, 3, generator=generator), torch.zeros(500, 1)], dim=1)
    kept, narrowed = _narrow(hidden, weight, 6)
    assert kept.tolist() == [0, 1, 2, 3, 4, 5]  # of the others three follow from these, and one is nothing
    torch.testing.assert_close(hidden[:, kept] @ narrowed.T, hidden @ weight.T, atol=0.02, rtol=0.02)


def test_a_t5_with_narrowed_feed_forwards_does_nearly_as_the_bert_does(bert, words):
    made = stitch(bert, words, layers=[0, 1], texts=SAMPLE, feed_forward=100)
    assert made.tower.backbone.config.d_ff == 100 < bert.tower.backbone.config.intermediate_size
    assert likeness(made.embed(HELD_OUT), bert.embed(HELD_OUT)) > 0.9


@pytest.mark.parametrize("feed_forward", [0, 10_000])
def test_wider_feed_forwards_than_the_models_are_refused(bert, words, feed_forward):
    with pytest.raises(SettingError, match=f"feed_forward {feed_forward}: the model's are"):
        stitch(bert, words, layers=[0], texts=SAMPLE, feed_forward=feed_forward)


def test_centring_takes_the_mean_away_that_all_vectors_share(bert, words):
    def mean_length(center):
        return np.linalg.norm(stitch(bert, words, layers=[1], texts=SAMPLE, center=center).embed(TEXTS).mean(0))

    assert mean_length(1.0) < 0.2 < 0.5 < mean_length(0.0)


def test_what_is_no_bert_is_refused(tiny, t5_tokenizer):
    with pytest.raises(SettingError, match="not a BERT"):
        stitch(tiny("t5"), t5_tokenizer, layers=[0], texts=SAMPLE)


@pytest.mark.parametrize("layers", [[], [2], [-1, 0], [1, 0], [1, 1]])
def test_layers_that_are_not_there_are_refused(bert, t5_tokenizer, layers):
    with pytest.raises(SettingError, match="layers 0 to 1"):
        stitch(bert, t5_tokenizer, layers=layers, texts=SAMPLE)


def test_a_prompt_behind_the_text_is_refused(tiny, words):
    with pytest.raises(SettingError, match="after the text"):
        stitch(tiny("bert", readout="mean", prompt="gense"), words, layers=[0], texts=SAMPLE)


def test_a_tokenizer_without_an_end_is_refused(bert):
    with pytest.raises(SettingError, match="text's end"):
        stitch(bert, bert.tokens.tokenizer, layers=[0], texts=SAMPLE)


def test_more_tokens_than_memory_is_for_are_refused(bert, words, monkeypatch):
    monkeypatch.setattr("tercet.encoder.stitch._MAX_NUMBERS", 1000 * 128)
    with pytest.raises(InputError, match=r"tokens, and memory is for 1,000\. Lower max_texts"):
        stitch(bert, words, layers=[0], texts=SAMPLE)


def test_too_few_texts_are_refused(bert, words):
    with pytest.raises(InputError, match="100 texts are fewer than a vector's 128 numbers"):
        stitch(bert, words, layers=[0], texts=SAMPLE[:100])


def test_a_recipe_stitches_a_start_and_trains_on(bert, words, tmp_path):
    bert.save(tmp_path / "bert")
    words.save_pretrained(tmp_path / "words")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"""
encoder: {{readout: enc-mean, projection: 128}}
stages:
  - name: start
    stitch: {{model: {tmp_path}/bert, tokenizer: {tmp_path}/words, layers: [0, 1], rows: &rows {tmp_path}/texts.txt,
              max_texts: 150, center: 0.2, max_tokens: 40}}
  - name: distill
    distill: {{start: "@start", teacher: {tmp_path}/bert, rows: *rows, batch: 16, steps: 2, learning_rate: 1.0e-4}}
""")
    run_recipe(read_recipe(recipe), run=tmp_path / "run")
    start = Encoder.load(tmp_path / "run/stages/01-start/encoder")
    assert likeness(start.embed(TEXTS), bert.embed(TEXTS)) > 0.9
    assert np.linalg.norm(start.embed(TEXTS).mean(0)) > 0.3
    assert start.settings.max_tokens == 40
    assert json.loads((tmp_path / "run/stages/01-start/stage.json").read_text())["notes"]["num_texts"] == 150
    assert (tmp_path / "run/encoder/model.safetensors").exists()
