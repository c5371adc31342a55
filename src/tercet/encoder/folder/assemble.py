"""From a folder or a shape to a tower and its tokens: what is stored, what is asked for, the rest drawn at random."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tercet.encoder.folder.backbone import (
    fresh_backbone,
    load_backbone,
    load_pooler,
    model_type_of,
    require_safetensors,
    stored_dtype,
)
from tercet.encoder.folder.layout import Stored, read_folder
from tercet.encoder.folder.limits import check_tokenizer
from tercet.encoder.folder.names import FRESH
from tercet.encoder.folder.weights import StoredTower, read_weights
from tercet.encoder.model.prompts import SLOT, Prompt
from tercet.encoder.model.readouts import READOUTS, check_readout
from tercet.encoder.model.settings import EncoderSettings
from tercet.encoder.model.shapes import shape_config
from tercet.encoder.model.tokens import TokenizerFile, Tokens, load_tokenizer, tokenizer_file
from tercet.encoder.model.tower import Dense, Head, Tower
from tercet.encoder.model.trusted import refuse_code
from tercet.errors import SettingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger("tercet")

_MAX_TOKENS = 512
"""The most that is read of a text where neither the model nor its tokenizer says."""

_UNLIMITED = 1_000_000
"""A tokenizer that names this or more names no limit."""


def assemble_fresh(
    shape: str, tokenizer: "PreTrainedTokenizerBase | None", settings: EncoderSettings, seed: int
) -> tuple[Tower, Tokens]:
    """Make an encoder of a named shape with random weights."""
    if tokenizer is None:
        raise SettingError(f"{FRESH}{shape}: a fresh model needs a tokenizer. Give tokenizer=FOLDER.")
    readout = settings.readout or ("enc-mean" if "t5" in shape else "mean")
    readout = check_readout(readout, shape_config(shape).model_type)
    decoder = READOUTS[readout].pooling == "decoder"
    pad_id = tokenizer.pad_token_id or 0
    backbone = fresh_backbone(shape, decoder=decoder, vocab_size=len(tokenizer), pad_id=pad_id, seed=seed)
    config, stored = backbone.config.to_dict(), Stored(Path(), readout=readout)
    head = _make_head(config, stored, settings, seed)
    return Tower(backbone, head).eval(), _make_tokens(config, tokenizer, stored, settings)


def assemble_stored(
    folder: Path,
    tokenizer: "PreTrainedTokenizerBase | None",
    settings: EncoderSettings,
    convert_pickle: bool,
    seed: int,
    *,
    device: torch.device,
    embedded: bool,
) -> tuple[Tower | StoredTower, Tokens, Stored]:
    """Make the encoder in a model folder, with settings in place of its own; also return what the folder says.

    Where only the packed forward is needed, weights and tokenizer are read without transformers, as they stand.
    """
    stored = read_folder(folder, convert_pickle=convert_pickle)
    name = settings.readout or stored.readout
    if name is None:
        names = ", ".join(READOUTS)
        raise SettingError(f"{folder}: does not say how vectors are read out. Set readout to one of: {names}.")
    readout = READOUTS[check_readout(name, model_type_of(stored.transformer))]
    decoder = readout.pooling == "decoder"
    refuse_code(stored.transformer, "config.json")
    if readout.has_mlp and stored.mlp is None:
        require_safetensors(stored.transformer, "model", convert_pickle=convert_pickle)
        stored.mlp = load_pooler(stored.transformer)
    layers = len(stored.dense)
    make_tower: Callable[[Head], Tower | StoredTower]
    found = read_weights(stored.transformer, decoder=decoder) if device.type == "cpu" else None
    if found is not None:
        config, weights = found
        stored.dtype, make_tower = stored_dtype(stored.transformer), partial(StoredTower, config, weights)
    else:
        backbone, stored.dtype = load_backbone(stored.transformer, decoder=decoder, convert_pickle=convert_pickle)
        config, make_tower = backbone.config.to_dict(), partial(Tower, backbone)
    head = _make_head(config, stored, settings, seed)
    file = tokenizer_file(stored.transformer) if tokenizer is None and (stored.ours or embedded) else None
    if (head.mlp is not None and stored.mlp is None) or len(head.dense) > layers:
        logger.warning("%s: has no such layer, so its MLP or projection is drawn at random and must be trained", folder)
    tokens = _make_tokens(config, file or tokenizer or load_tokenizer(stored.transformer), stored, settings)
    tower = make_tower(head.eval())
    return tower.eval() if isinstance(tower, Tower) else tower, tokens, stored


def _make_head(config: Mapping[str, Any], stored: Stored, settings: EncoderSettings, seed: int) -> Head:
    """Join what is stored, what is asked for, and fresh layers where something is asked for that is not stored."""
    width = int(config.get("d_model") or config["hidden_size"])
    readout = check_readout(settings.readout or stored.readout or "", config["model_type"])
    given, dense = settings.given(), stored.dense
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mlp = stored.mlp or Dense(width, width, bias=True, activation="tanh") if READOUTS[readout].has_mlp else None
        if "projection" in given:
            dense = _with_projection(dense, given["projection"], width)
    return Head(
        readout,
        width,
        mlp=mlp,
        mlp_when=given.get("mlp", stored.mlp_when),
        dense=dense,
        normalize=given.get("normalize", stored.normalize),
    )


def _make_tokens(
    config: Mapping[str, Any],
    tokenizer: "PreTrainedTokenizerBase | TokenizerFile",
    stored: Stored,
    settings: EncoderSettings,
) -> Tokens:
    check_tokenizer(tokenizer, stored.transformer, vocab_size=config.get("vocab_size"))
    prompt = settings.given().get("prompt", stored.prompt)
    if prompt in stored.prompts:
        prompt = stored.prompts[prompt] + SLOT
    return Tokens(
        tokenizer,
        prompt=None if prompt is None else Prompt.parse(prompt),
        max_tokens=_max_tokens(settings.max_tokens, stored.max_tokens, tokenizer.model_max_length, config),
        lowercase=stored.lowercase,
    )


def _with_projection(dense: list[Dense], projection: int | None, width: int) -> list[Dense]:
    stored = bool(dense) and dense[-1].activation == "identity" and dense[-1].linear.bias is None
    if projection is None:
        return dense[:-1] if stored else dense
    if stored and dense[-1].linear.out_features != projection:
        has = dense[-1].linear.out_features
        raise SettingError(f"projection {projection}: the model has a trained one to {has}. Leave the setting out.")
    if stored:
        return dense
    in_width = dense[-1].linear.out_features if dense else width
    return [*dense, Dense(in_width, projection, bias=False, activation="identity")]


def _max_tokens(wanted: int | None, stored: int | None, named: int | None, config: Mapping[str, Any]) -> int:
    positions = config.get("max_position_embeddings")  # T5 has none: its positions are relative
    if positions and config["model_type"] in ("roberta", "xlm-roberta"):
        positions -= config.get("pad_token_id", 1) + 1  # its position ids start after the padding id
    if wanted and positions and wanted > positions:
        raise SettingError(f"max_tokens {wanted}: this model has {positions} positions. Take {positions} or fewer.")
    default = named if named and 0 < named < _UNLIMITED else _MAX_TOKENS
    return min(wanted or stored or default, positions or _UNLIMITED)
