"""A T5 with its language-model head: read from a folder or fresh, and written so that it reads the same again."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import nn

from tercet.encoder.folder.backbone import model_type_of, read_model, write_model
from tercet.encoder.folder.limits import check_files, check_tokenizer
from tercet.encoder.folder.names import FRESH, find_folder
from tercet.encoder.model.shapes import shape_config
from tercet.encoder.model.tokens import load_tokenizer
from tercet.errors import ModelError, SettingError
from tercet.storage.manifest import write_manifest

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
    encoder_layers: Sequence[int] | None = None,
    decoder_layers: int | None = None,
) -> "tuple[T5ForConditionalGeneration, PreTrainedTokenizerBase]":
    """Load a T5 that generates text, in fp32, and its tokenizer.

    Args:
        name: A model folder, a hub id, or `random:SHAPE` for a fresh model.
        tokenizer: The tokenizer of a fresh model, or another one than the model's own.
        revision: The branch, tag or commit on the hub.
        convert_pickle: Whether a pickled checkpoint may be converted, weights only.
        seed: What fresh weights are drawn with.
        encoder_layers: Which of the encoder's layers it keeps, from 0 on; all where None.
        decoder_layers: How many layers the decoder has, if not as many as the model's; those that the model lacks are
            fresh. Then it may be an encoder alone.

    Raises:
        ModelError: The model cannot be found, read or trusted, or has no language-model head.
        SettingError: A fresh model has no tokenizer, or is no T5, or the encoder has no such layers.
    """
    given = None if tokenizer is None else load_tokenizer(find_folder(str(tokenizer), weights=False))
    if name.startswith(FRESH):
        if given is None:
            raise SettingError(f"{name}: a fresh model needs a tokenizer. Give tokenizer=FOLDER.")
        own, make = given, partial(_fresh, name.removeprefix(FRESH), given)
    else:
        folder = find_folder(name, revision=revision, pickles=convert_pickle)
        check_files(folder)
        own, make = given or load_tokenizer(folder), partial(_stored, folder, convert_pickle)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make(decoder_layers)
    check_tokenizer(own, name, vocab_size=model.config.vocab_size)
    if encoder_layers is not None:
        keep_layers(model, "encoder", encoder_layers)
    return model, own


def save_generator(
    model: "T5ForConditionalGeneration",
    tokenizer: "PreTrainedTokenizerBase",
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model, with its weights in a number format, and its tokenizer into a folder that transformers reads."""
    # transformers decides by this key whether outputs are scaled, but writes `true` for every T5
    scaled = getattr(model.config, "scale_decoder_outputs", True)
    write_model(model, folder, dtype=dtype, config={} if scaled else {"tie_word_embeddings": False})
    tokenizer.save_pretrained(folder)
    write_manifest(folder)


def is_tied(config: "PretrainedConfig") -> bool:
    """Return whether the head has the weights of the token table, by the sort of T5: not in v1.1, mT5 and umT5."""
    return bool(getattr(config, "scale_decoder_outputs", False))


def head_scale(config: "PretrainedConfig") -> float:
    """Return what the decoder's output is multiplied with before the head, as transformers does it."""
    scaled = getattr(config, "scale_decoder_outputs", config.model_type == "umt5")
    return float(config.d_model**-0.5) if scaled else 1.0


def _fresh(
    shape: str, tokenizer: "PreTrainedTokenizerBase", decoder_layers: int | None
) -> "T5ForConditionalGeneration":
    config = shape_config(shape, vocab_size=len(tokenizer))
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id or 0, tokenizer.eos_token_id
    config.num_decoder_layers = decoder_layers or config.num_decoder_layers
    model: T5ForConditionalGeneration = _class_of(config.model_type, shape)(config)
    if not is_tied(config):
        head = torch.randn_like(model.lm_head.weight)  # as wide as T5 v1.1 draws it
        model.lm_head.weight = nn.Parameter(head)
    return model


def _stored(folder: Path, convert_pickle: bool, decoder_layers: int | None) -> "T5ForConditionalGeneration":
    model_class = _class_of(model_type_of(folder), str(folder))
    other = {"num_decoder_layers": decoder_layers, "is_encoder_decoder": True, "use_cache": True}
    model, missing = read_model(
        folder, model_class, convert_pickle=convert_pickle, **(other if decoder_layers is not None else {})
    )
    lacking = [name for name in missing if decoder_layers is None or not name.startswith(("decoder.", "lm_head."))]
    if lacking:
        raise ModelError(
            f"{folder}: {len(lacking)} weights are missing, {lacking[0]} first. Take a whole T5, or set decoder_layers."
        )
    last_norm = "decoder.final_layer_norm.weight"
    if is_tied(model.config) and last_norm in missing:
        # a table that was never a head may be of any scale: scores of words begin as far apart as in a fresh T5
        spread = model.get_parameter("shared.weight").std().item()
        nn.init.constant_(model.get_parameter(last_norm), 1 / spread)
    return cast("T5ForConditionalGeneration", model)


def keep_layers(model: "T5ForConditionalGeneration", part: Literal["encoder", "decoder"], kept: Sequence[int]) -> None:
    """Leave all layers of the encoder or decoder out but these, counted from 0.

    Raises:
        SettingError: There are no such layers, or the first is not among them.
    """
    stack = getattr(model, part)
    if [*kept] != sorted({0, *kept} & set(range(len(stack.block)))):
        raise SettingError(
            f"{part}_layers {[*kept]}: the {part} has the layers 0 to {len(stack.block) - 1}. "
            "Name some of them in their order, the first among them: it knows places for all."
        )
    stack.block = nn.ModuleList(stack.block[i] for i in kept)
    for number, block in enumerate(stack.block):  # where each keeps its keys and values while a text is written
        for layer in block.layer:
            for attention in (getattr(layer, name, None) for name in ("SelfAttention", "EncDecAttention")):
                if attention is not None:
                    attention.layer_idx = number
    stack.config.num_layers = len(kept)
    setattr(model.config, "num_layers" if part == "encoder" else "num_decoder_layers", len(kept))


def keep_tokens(model: "T5ForConditionalGeneration", kept: Sequence[int]) -> None:
    """Leave all tokens out but these, in this order: of the token table and of the head."""
    # resize_token_embeddings of transformers would tie the head to the table, in T5 v1.1 too
    table = nn.Embedding.from_pretrained(model.shared.weight.detach()[[*kept]], freeze=False)
    head = table.weight if is_tied(model.config) else nn.Parameter(model.lm_head.weight.detach()[[*kept]])
    model.shared = model.encoder.embed_tokens = model.decoder.embed_tokens = table
    model.lm_head.weight, model.lm_head.out_features = head, len(kept)
    model.config.vocab_size = model.encoder.config.vocab_size = model.decoder.config.vocab_size = len(kept)


def _class_of(model_type: str, name: str) -> Any:
    import transformers

    if model_type not in _CLASSES:
        raise SettingError(f"{name}: is a {model_type} model, which generates no text. Take a T5.")
    return getattr(transformers, _CLASSES[model_type])
