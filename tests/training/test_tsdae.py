"""TSDAE against sentence-transformers' loss (BERT) and against transformers' own T5, a text at a time."""

import copy
from collections import Counter

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
from torch.nn import functional as F
from transformers import T5ForConditionalGeneration

from tercet import Encoder, SettingError
from tercet.data.rows.kinds import Text
from tercet.encoder.language import language_model
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.tsdae import Tsdae, TsdaeSettings, delete_words
from tercet.training.recipe import make_recipe

IN_PIECES = ComputeSettings(max_activation_gb=1e-9, max_batch_tokens=40)


def make(tiny, tokenizers, tmp_path, family, *, tied=True, saved=False, compute=IN_PIECES, **settings):
    """Return an encoder without dropout, its decoder, and the objective."""
    readout = "enc-mean" if "t5" in family else "cls"
    encoder, name = tiny(family, readout=readout, normalize=False, **settings), f"random:{family}-tiny"
    if saved:
        encoder.save(tmp_path / "start")
        encoder, name = Encoder.load(tmp_path / "start"), str(tmp_path / "start")
    tokenizers[family].save_pretrained(tmp_path / "tokenizer")
    decoder = language_model(encoder, name, kind="decoder", tied=tied, tokenizer=tmp_path / "tokenizer", seed=5)
    encoder.tower.eval(), decoder.eval()
    return encoder, decoder, Tsdae(encoder, decoder, TsdaeSettings(tie_decoder=tied), compute=compute)


def taken(module):
    """Return all gradients by name, and forget them."""
    found = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return found


def test_words_are_deleted_by_chance_and_one_stays():
    torch.manual_seed(1)
    text = "one two  three, four five"
    kept = Counter(word for _ in range(4000) for word in delete_words(text, 0.6).split())
    assert kept.keys() == {"one", "two", "three,", "four", "five"}
    # a word stays with 0.4, or is the one of five that stays where none would
    assert all(abs(num / 4000 - (0.4 + 0.6**5 / 5)) < 0.03 for num in kept.values())
    assert all(delete_words(text, 0.99) for _ in range(50))
    assert delete_words(text, 0) == text
    assert delete_words("", 0.6) == "" and delete_words("  ", 0.6) == "  "
    assert {delete_words("日本", 0.5) for _ in range(60)} == {"日", "本", "日本"}


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_step_on_a_bert_is_that_of_sentence_transformers(tiny, tokenizers, sentences, tmp_path, family):
    _, decoder, objective = make(tiny, tokenizers, tmp_path, family, saved=True)
    texts = [text for text in sentences if text]
    torch.manual_seed(3)
    result = objective.step([Text(text) for text in texts])
    ours = taken(objective.module)

    library = SentenceTransformer(str(tmp_path / "start"), device="cpu")
    loss = DenoisingAutoEncoderLoss(library, tie_encoder_decoder=True)
    own = dict(decoder.named_parameters())
    for name, parameter in loss.decoder.named_parameters():  # the library draws these by itself
        if "crossattention" in name or name.startswith(("cls.", "lm_head.")):
            parameter.data.copy_(own[name])
    loss.eval()
    torch.manual_seed(3)
    features = [library.preprocess(column) for column in ([delete_words(text, 0.6) for text in texts], texts)]
    value = loss(features, None)
    value.backward()
    assert result.loss == pytest.approx(value.item(), rel=1e-5)
    assert result.metrics["num_targets"] == (features[1]["attention_mask"].sum() - len(texts)).item()
    theirs = {f"tower.backbone.{name}": p.grad for name, p in library[0].auto_model.named_parameters()}
    theirs |= {f"decoder.{name}": p.grad for name, p in loss.decoder.named_parameters()}
    assert {name.split(".")[0] for name in ours} == {"tower", "decoder"}
    assert any("crossattention" in name for name in ours)
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name], atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["t5", "t5-1.1"])
def test_a_step_on_a_t5_is_that_of_transformers_a_text_at_a_time(tiny, tokenizers, sentences, tmp_path, family, tied):
    encoder, decoder, objective = make(tiny, tokenizers, tmp_path, family, tied=tied)
    texts = [text for text in sentences if text]
    torch.manual_seed(3)
    result = objective.step([Text(text) for text in texts])
    ours = taken(objective.module)

    # a whole T5 with equal weights and nothing shared between encoder and decoder but the table
    whole = T5ForConditionalGeneration(copy.deepcopy(decoder.config)).eval()
    if family == "t5-1.1":  # transformers ties its head, although it has one of its own
        whole.lm_head.weight = torch.nn.Parameter(whole.lm_head.weight.clone())
    whole.load_state_dict(decoder.state_dict() | encoder.tower.backbone.state_dict(), strict=True)
    torch.manual_seed(3)
    total, num = 0.0, 0
    for text in texts:
        seen = tokenizers[family](delete_words(text, 0.6), truncation=True, return_tensors="pt")
        wanted = tokenizers[family](text, truncation=True, return_tensors="pt")["input_ids"]
        vector = whole.encoder(**seen).last_hidden_state.mean(1, keepdim=True)
        given = F.pad(wanted[:, :-1], (1, 0), value=0)
        scores = whole(encoder_outputs=(vector,), decoder_input_ids=given).logits
        total, num = total + F.cross_entropy(scores[0], wanted[0], reduction="sum"), num + wanted.numel()
    (total / num).backward()
    assert result.loss == pytest.approx((total / num).item(), rel=1e-5)
    theirs = {name: p.grad for name, p in whole.named_parameters()}
    for name, gradient in ours.items():
        plain = name.removeprefix("tower.backbone.").removeprefix("decoder.") if name.startswith("tower") else name[8:]
        wanted = theirs[plain]
        twin = plain.replace("encoder.", "decoder.", 1).replace(".layer.1.", ".layer.2.")
        if tied and plain.startswith("encoder.block") and "relative" not in plain:
            wanted = wanted + theirs[twin]
        torch.testing.assert_close(gradient, wanted, atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
    shared = {id(p) for p in encoder.tower.parameters()} & {id(p) for p in decoder.parameters()}
    assert len(shared) == (len(list(encoder.tower.backbone.encoder.block.parameters())) if tied else 1)


def test_a_bert_s_own_decoder_starts_as_its_encoder_and_learns_by_itself(tiny, tokenizers, sentences, tmp_path):
    encoder, decoder, objective = make(tiny, tokenizers, tmp_path, "bert", tied=False)
    theirs = encoder.tower.backbone.state_dict()
    assert theirs.keys() == {name for name in decoder.base_model.state_dict() if "crossattention" not in name}
    assert all(torch.equal(decoder.base_model.state_dict()[name], weight) for name, weight in theirs.items())
    objective.step([Text(sentences[0]), Text(sentences[1])])
    name = "encoder.layer.0.output.dense.weight"
    one, two = (module.get_parameter(name).grad for module in (encoder.tower.backbone, decoder.base_model))
    assert one.abs().max() > 0 and two.abs().max() > 0 and not torch.equal(one, two)


def test_an_encoder_alone_is_a_start_and_a_vector_of_another_width_is_refused(tiny, tokenizers, tmp_path):
    encoder, decoder, _ = make(tiny, tokenizers, tmp_path, "t5-1.1", saved=True)
    assert len(decoder.decoder.block) == len(encoder.tower.backbone.encoder.block)
    assert decoder.lm_head.weight is not encoder.tower.backbone.shared.weight
    with pytest.raises(SettingError, match=r"vectors have 100 numbers, and the decoder reads 256\. Set encoder\.proj"):
        make(tiny, tokenizers, tmp_path, "t5", projection=100)
    with pytest.raises(SettingError, match="is a T5, which has no masked words"):
        language_model(encoder, str(tmp_path / "start"), kind="masked")


def test_the_decoder_sees_nothing_of_a_text_but_its_vector(tiny, tokenizers, tmp_path):
    _, _, objective = make(tiny, tokenizers, tmp_path, "t5")
    row = [Text("A man is playing a guitar on the stage.")]
    torch.manual_seed(3)
    one = objective.step(row).loss
    torch.manual_seed(3)
    assert objective.step([*row, Text("The stock market fell sharply on Monday.")]).metrics["num_targets"] > 0
    with torch.no_grad():
        for block in objective.module["decoder"].decoder.block:
            block.layer[1].EncDecAttention.o.weight.zero_()
    losses = []
    for seed in range(3):  # other words are deleted, and nothing changes
        torch.manual_seed(seed)
        losses.append(objective.step(row).loss)
    assert losses == pytest.approx([losses[0]] * 3) and losses[0] != one


def test_lora_is_refused():
    stage = {"start": "x", "rows": "a.txt", "batch": 8, "steps": 1, "learning_rate": 1e-3, "lora": {"rank": 2}}
    with pytest.raises(SettingError, match="lora: what scores words shares the encoder's layers"):
        make_recipe({"stages": [{"tsdae": stage}]}, default_name="x")
