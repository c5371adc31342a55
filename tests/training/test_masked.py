"""Masked words beside contrast, against transformers' own model; and an MLP that starts fresh."""

import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, BertModel, DataCollatorForLanguageModeling, RobertaForMaskedLM

from tercet import Encoder, SettingError, train
from tercet.data.rows.kinds import Triplet
from tercet.encoder.language import language_model
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.contrast import Contrast, ContrastSettings
from tercet.training.objectives.masked import MaskedWords
from tercet.training.recipe import make_recipe

TRIPLETS = [
    Triplet("A man is playing a guitar on the stage.", "Somebody plays an instrument.", ("Stocks dropped.",)),
    Triplet("The stock market fell sharply on Monday.", "Stocks dropped.", ("Two dogs run.",)),
]
TEXTS = [TRIPLETS[0].anchor, TRIPLETS[1].anchor, "Somebody plays an instrument.", "Stocks dropped.", "Two dogs run."]
CLASSES = {"bert": BertForMaskedLM, "roberta": RobertaForMaskedLM}


def gradients(module):
    found = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return found


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_loss_of_masked_words_is_added_with_its_weight_and_its_gradients(tiny, tokenizers, tmp_path, family):
    tokenizers[family].save_pretrained(tmp_path)
    encoder = tiny(family, readout="cls-mlp", normalize=False)
    encoder.tower.eval()
    compute = ComputeSettings(max_batch_tokens=10_000)
    plain = Contrast(encoder, ContrastSettings(), compute=compute)
    alone = plain.step(TRIPLETS)
    wanted = gradients(encoder.tower)
    assert "mlm" not in alone.metrics

    settings = ContrastSettings(mlm_weight=0.1)
    model = language_model(encoder, f"random:{family}-tiny", kind="masked", seed=5).eval()
    words = MaskedWords(encoder, model, settings, compute=compute)
    both = Contrast(encoder, settings, compute=compute, words=words)
    torch.manual_seed(3)
    result = both.step(TRIPLETS)
    ours = gradients(both.module)

    whole = CLASSES[family](model.config).eval()
    whole.load_state_dict(model.state_dict())
    tokenizer = tokenizers[family]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    rows = sorted((tokenizer(text)["input_ids"] for text in TEXTS), key=lambda ids: -len(ids))
    torch.manual_seed(3)
    batch = collator([{"input_ids": ids} for ids in rows])
    scores = whole(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    loss = F.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten())
    (0.1 * loss).backward()
    assert result.metrics["mlm"] == pytest.approx(loss.item(), rel=1e-5)
    assert result.loss == pytest.approx(alone.loss + 0.1 * loss.item(), rel=1e-5)
    theirs = {name.removeprefix(f"{family}."): p.grad for name, p in whole.named_parameters()}
    for name, gradient in ours.items():
        if name.startswith("tower.backbone."):
            other = wanted["backbone." + name.removeprefix("tower.backbone.")] + theirs[name[15:]]
            torch.testing.assert_close(gradient, other, atol=1e-5, rtol=1e-4)
    heads = {name: gradient for name, gradient in ours.items() if name.startswith("words.")}
    assert heads
    for name, gradient in heads.items():
        torch.testing.assert_close(gradient, theirs[name.removeprefix("words.")], atol=1e-5, rtol=1e-4)


@pytest.fixture
def start(bert_tokenizer, tmp_path):
    """A BERT checkpoint with a pooler."""
    config = BertConfig(
        vocab_size=len(bert_tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertModel(config).save_pretrained(tmp_path / "start")
    bert_tokenizer.save_pretrained(tmp_path / "start")
    (tmp_path / "rows.txt").write_text("\n".join([*TEXTS, "The market fell.", "A man plays.", "Dogs run."]))
    return str(tmp_path / "start")


def test_an_mlp_starts_as_the_pooler_or_fresh_and_a_stage_may_mask_words(start, tmp_path):
    pooler = Encoder.load(start, readout="cls-mlp").head.mlp.linear.weight
    loop = {"rows": str(tmp_path / "rows.txt"), "batch": 4, "steps": 1, "learning_rate": 1e-12, "optimizer": "adamw"}
    for name, changes in {"kept": {}, "fresh": {"fresh_mlp": True, "mlm_weight": 0.1}}.items():
        content = {"start": start, "encoder": {"readout": "cls-mlp"}, "stages": [{"contrast": {**loop, **changes}}]}
        result = train(make_recipe(content, default_name=name), tmp_path / name)
        weight = Encoder.load(result.encoder).head.mlp.linear.weight
        assert torch.allclose(weight, pooler, atol=1e-6) == (name == "kept")
        assert ("mlm" in (tmp_path / name / "metrics.jsonl").read_text()) == (name == "fresh")
    content["stages"][0]["contrast"]["encoder"] = {"readout": "cls"}
    with pytest.raises(SettingError, match=r"fresh_mlp: there is no MLP\. Set encoder\.readout: cls-mlp"):
        train(make_recipe(content, default_name="x"), tmp_path / "x")


def test_masked_words_do_not_go_with_lora():
    stage = {
        "start": "x",
        "rows": "a.txt",
        "batch": 8,
        "steps": 1,
        "learning_rate": 1e-3,
        "lora": {},
        "mlm_weight": 0.1,
    }
    with pytest.raises(SettingError, match="mlm_weight: what scores words shares the encoder's layers"):
        make_recipe({"stages": [{"contrast": stage}]}, default_name="x")
