"""The stage `shrink`: a smaller T5 that still says what the larger one said."""

import pytest
import torch
import yaml
from transformers import AutoModelForSeq2SeqLM

from tercet import SettingError
from tercet.encoder.generator import keep_layers, keep_tokens, load_generator, save_generator
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe

IDS = torch.tensor([[5, 6, 7, 1]])


@pytest.mark.parametrize("family", ["t5", "t5-1.1"])
def test_scores_of_the_tokens_that_stay_are_unchanged(synthesizer_folder, tmp_path, family):
    whole, tokenizer = load_generator(str(synthesizer_folder(family)))
    model, _ = load_generator(str(synthesizer_folder(family)))
    kept = [*range(20), *range(30, 40)]
    keep_tokens(model, kept)
    save_generator(model, tokenizer, tmp_path / "smaller")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "smaller")
    assert (again.lm_head.weight.data_ptr() == again.shared.weight.data_ptr()) == (family == "t5")
    with torch.no_grad():
        wanted = whole.eval()(input_ids=IDS, decoder_input_ids=IDS).logits[..., kept]
        for made in (model.eval(), again.eval()):
            torch.testing.assert_close(made(input_ids=IDS, decoder_input_ids=IDS).logits, wanted)


def test_layers_that_are_left_out_are_as_if_they_added_nothing(synthesizer_folder):
    whole, _ = load_generator(str(synthesizer_folder("t5")))
    model, _ = load_generator(str(synthesizer_folder("t5")))
    keep_layers(model, "decoder", [0])
    with torch.no_grad():
        for block in whole.decoder.block[1:]:
            for layer in block.layer:
                for name, weight in layer.named_parameters():
                    if name.endswith(("o.weight", "wo.weight")):
                        weight.zero_()
        a, b = (each.eval()(input_ids=IDS, decoder_input_ids=IDS).logits for each in (whole, model))
    torch.testing.assert_close(a, b)
    written = [each.generate(input_ids=IDS, max_new_tokens=5, do_sample=False) for each in (whole, model)]
    assert torch.equal(*written)  # with the keys and values of earlier steps kept
    with pytest.raises(SettingError, match=r"decoder_layers \[1\]: the decoder has the layers 0 to 0"):
        keep_layers(model, "decoder", [1])


def test_a_recipe_shrinks_its_start_for_later_stages(synthesizer_folder, tmp_path):
    (tmp_path / "texts.txt").write_text("A man plays a guitar.\nTwo dogs run.\n")
    (tmp_path / "nli.tsv").write_text("premise\thypothesis\tlabel\n" + "A man plays.\tA man.\tentailment\n" * 4)
    recipe = {
        "start": "google/flan-t5-small",
        "stages": [
            {"name": "small", "shrink": {"rows": str(tmp_path / "texts.txt"), "num_pieces": 90, "decoder_layers": [0]}},
            {
                "name": "nli",
                "synthesizer": {
                    "start": "@small", "rows": str(tmp_path / "nli.tsv"), "batch": 2, "steps": 1, "learning_rate": 1e-3
                },
            },
        ],
    }  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    folder = synthesizer_folder("t5")
    run = run_recipe(read_recipe(tmp_path / "recipe.yaml", changes=[f"start={folder}"]), tmp_path / "run")
    whole, tokenizer = load_generator(str(folder))
    model, smaller = load_generator(str(run.stages[1].output.path))
    assert len(smaller) == model.shared.num_embeddings == 90 < len(tokenizer)
    assert len(model.decoder.block) == 1 < len(whole.decoder.block)
    assert len(model.encoder.block) == len(whole.encoder.block)
    assert run.stages[0].notes["num_parameters"] == model.num_parameters()
