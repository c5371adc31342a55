"""A language model around an encoder: the encoder's own layers and words, and what it takes to score words."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import nn

from tercet.encoder.encoder import Encoder
from tercet.encoder.folder.backbone import read_model
from tercet.encoder.folder.layout import read_folder
from tercet.encoder.folder.names import FRESH, find_folder
from tercet.encoder.generator import is_tied, load_generator
from tercet.encoder.model.readouts import T5_FAMILY
from tercet.encoder.model.tower import Tower
from tercet.errors import SettingError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Kind = Literal["decoder", "masked"]

_CLASSES: dict[str, dict[Kind, str]] = {
    "bert": {"decoder": "BertLMHeadModel", "masked": "BertForMaskedLM"},
    "roberta": {"decoder": "RobertaForCausalLM", "masked": "RobertaForMaskedLM"},
    "xlm-roberta": {"decoder": "XLMRobertaForCausalLM", "masked": "XLMRobertaForMaskedLM"},
}
"""The class in transformers by its model type."""


def language_model(
    encoder: Encoder,
    name: str,
    *,
    kind: Kind,
    tied: bool = True,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
    convert_pickle: bool = False,
    seed: int = 0,
) -> "PreTrainedModel":
    """Return a language model that has the layers and the token table of an encoder, in fp32, on its device.

    What an encoder lacks comes from its checkpoint where that has it (the head of a BERT, the attention of a T5's
    decoder to a text, its distances), and is drawn at random where not.

    Args:
        encoder: The encoder, which shares its parameters with the model.
        name: What it was loaded by.
        kind: `decoder` writes a text and attends to `encoder_hidden_states` (of a T5: `encoder_outputs`); `masked`, of
            a BERT, scores the words of a text that are hidden from it.
        tied: Whether a decoder shares the encoder's layers; else it starts as the checkpoint's own decoder, or of a
            BERT as a copy of the encoder. The token table of a T5 is shared in any case.
        tokenizer: The tokenizer of a fresh model.
        revision: The branch, tag or commit on the hub.
        convert_pickle: Whether a pickled checkpoint may be converted, weights only.
        seed: What is drawn at random is drawn with it.

    Raises:
        SettingError: A masked model of a T5 was asked for.
    """
    tower, model_type = encoder.tower, encoder.tower.config["model_type"]
    if model_type in T5_FAMILY:
        if kind == "masked":
            raise SettingError(f"{name}: is a T5, which has no masked words. Take a BERT, or the stage denoise.")
        layers = tower.config["num_layers" if tied else "num_decoder_layers"]
        model: Any = load_generator(
            name,
            tokenizer=tokenizer,
            revision=revision,
            convert_pickle=convert_pickle,
            seed=seed,
            decoder_layers=layers,
        )[0]
        _share_t5(model, tower, tied=tied)
    else:
        options = {"is_decoder": True, "add_cross_attention": True} if kind == "decoder" else {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _bert(name, _CLASSES[model_type][kind], tower, options, revision, convert_pickle)
        _share_bert(model, tower, tied=tied)
    return cast("PreTrainedModel", model.to(encoder.device))


def _bert(
    name: str, class_name: str, tower: Tower, options: dict[str, bool], revision: str | None, convert_pickle: bool
) -> Any:
    import transformers

    model_class = getattr(transformers, class_name)
    if name.startswith(FRESH):
        return model_class(type(tower.backbone.config).from_dict({**tower.config, **options}))
    folder = read_folder(find_folder(name, revision=revision, pickles=convert_pickle)).transformer
    return read_model(folder, model_class, convert_pickle=convert_pickle, **options)[0]


def _share_bert(model: Any, tower: Tower, *, tied: bool) -> None:
    if not tied:
        model.base_model.load_state_dict(tower.backbone.state_dict(), strict=False)
        return
    for name, parameter in tower.weights().items():
        _replace(model.base_model, name, parameter)
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = tower.backbone.get_input_embeddings().weight


def _share_t5(model: Any, tower: Tower, *, tied: bool) -> None:
    table = tower.backbone.get_input_embeddings()
    model.set_input_embeddings(table)
    if is_tied(model.config):
        model.lm_head.weight = table.weight
    del model.encoder  # it is the tower's
    for name, parameter in tower.weights().items() if tied else ():
        # distances of an encoder go both ways; and the last norm is what scores of words depend on
        if name.startswith("encoder.block.") and "relative_attention_bias" not in name:
            decoders = name.replace("encoder.", "decoder.", 1).replace(".layer.1.", ".layer.2.")
            _replace(model, decoders, parameter)


def _replace(model: nn.Module, name: str, parameter: nn.Parameter | torch.Tensor) -> None:
    """Put a parameter in the place of a model's own of that name."""
    module, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(module), attribute, parameter)
