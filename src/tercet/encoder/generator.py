"""A T5 with its language-model head: read from a folder or fresh, and written so that it reads the same again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from tercet.encoder.backbone import model_type_of, read_json, read_model
from tercet.encoder.names import FRESH, find_folder
from tercet.encoder.shapes import shape_config
from tercet.encoder.tokens import load_tokenizer
from tercet.errors import ModelError, SettingError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase, T5ForConditionalGeneration

_CLASSES = {
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
}
"""The class in transformers by its model type."""


def load_generator(
    name: str,
    *,
    tokenizer: str | Path | None = None,
    revision: str | None = None,
    convert_pickle: bool = False,
    seed: int = 0,
) -> "tuple[T5ForConditionalGeneration, PreTrainedTokenizerBase]":
    """Load a T5 that generates text, in fp32, and its tokenizer.

    Args:
        name: A model folder, a hub id, or `random:SHAPE` for a fresh model.
        tokenizer: The tokenizer of a fresh model, or another one than the model's own.
        revision: The branch, tag or commit on the hub.
        convert_pickle: Whether a pickled checkpoint may be converted, weights only.
        seed: What fresh weights are drawn with.

    Raises:
        ModelError: The model cannot be found, read or trusted, or has no language-model head.
        SettingError: A fresh model has no tokenizer, or is no T5.
    """
    given = None if tokenizer is None else load_tokenizer(find_folder(str(tokenizer), weights=False))
    if name.startswith(FRESH):
        if given is None:
            raise SettingError(f"{name}: a fresh model needs a tokenizer. Give tokenizer=FOLDER.")
        return _fresh(name.removeprefix(FRESH), given, seed), given
    folder = find_folder(name, revision=revision, pickles=convert_pickle)
    return _stored(folder, convert_pickle), given or load_tokenizer(folder)


def save_generator(model: "T5ForConditionalGeneration", tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write a model and its tokenizer into a folder that transformers reads."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if not getattr(model.config, "scale_decoder_outputs", True):
        # transformers decides by this key, but writes `true` for every T5
        file = folder / "config.json"
        file.write_text(json.dumps(read_json(file) | {"tie_word_embeddings": False}, indent=2) + "\n", encoding="utf-8")


def is_tied(config: "PretrainedConfig") -> bool:
    """Return whether the head has the weights of the token table, by the sort of T5: not in v1.1, mT5 and umT5."""
    return bool(getattr(config, "scale_decoder_outputs", False))


def head_scale(config: "PretrainedConfig") -> float:
    """Return what the decoder's output is multiplied with before the head, as transformers does it."""
    scaled = getattr(config, "scale_decoder_outputs", config.model_type == "umt5")
    return float(config.d_model**-0.5) if scaled else 1.0


def _fresh(shape: str, tokenizer: "PreTrainedTokenizerBase", seed: int) -> "T5ForConditionalGeneration":
    config = shape_config(shape, vocab_size=len(tokenizer))
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id or 0, tokenizer.eos_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: T5ForConditionalGeneration = _class_of(config.model_type, shape)(config)
        if not is_tied(config):
            head = torch.randn_like(model.lm_head.weight)  # as wide as T5 v1.1 draws it
            model.lm_head.weight = nn.Parameter(head)
    return model


def _stored(folder: Path, convert_pickle: bool) -> "T5ForConditionalGeneration":
    model_class = _class_of(model_type_of(folder), str(folder))
    model, missing = read_model(folder, model_class, convert_pickle=convert_pickle)
    if missing:
        raise ModelError(f"{folder}: {len(missing)} weights are missing, {missing[0]} first. Take a whole T5.")
    return cast("T5ForConditionalGeneration", model)


def _class_of(model_type: str, name: str) -> Any:
    import transformers

    if model_type not in _CLASSES:
        raise SettingError(f"{name}: is a {model_type} model, which generates no text. Take a T5.")
    return getattr(transformers, _CLASSES[model_type])
