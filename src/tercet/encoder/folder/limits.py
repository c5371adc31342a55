"""What a model folder may ask for: files that are data, numbers that can be computed with, no more than its weights."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tercet.encoder.model.readouts import T5_FAMILY
from tercet.errors import ModelError
from tercet.storage.manifest import MANIFEST, check_manifest

if TYPE_CHECKING:
    from torch import Tensor

_FIX = "Fetch or save the model again."

_MAX_FILES = 10_000
_MAX_CHECKED_BYTES = 2**26
"""Files up to this size are compared with the manifest at every start: some hundredths of a second. Of larger weights,
size and header are looked at: safetensors reads no file whose header does not describe it to the last byte, and weights
whose names or shapes are not those of the configuration are refused. `tercet verify` compares all of them."""

_MAX_TOKENIZER_BYTES = 2**27
_MAX_GROWTH = 64
_FEW_WEIGHTS = 2**26
"""So many are made in a moment; reading the file will say what it lacks."""

_SIZES = {
    "d_model": 2**17,
    "d_kv": 2**14,
    "d_ff": 2**20,
    "num_heads": 2**12,
    "num_layers": 2**10,
    "num_decoder_layers": 2**10,
    "vocab_size": 2**24,
    "relative_attention_num_buckets": 2**12,
    "relative_attention_max_distance": 2**24,
    "hidden_size": 2**17,
    "intermediate_size": 2**20,
    "num_attention_heads": 2**12,
    "num_hidden_layers": 2**10,
    "max_position_embeddings": 2**20,
    "type_vocab_size": 2**10,
}
"""The most of each number of a configuration, and 1 is the least."""


def check_files(folder: Path) -> None:
    """Make sure that the files of a model folder are files, and that the small ones are as its manifest says.

    Raises:
        ModelError: One is a device or a pipe, which may have no end, or is not as it was written.
    """
    try:
        for number, path in enumerate(each for level in ("*", "*/*") for each in folder.glob(level)):
            if path.exists() and not path.is_file() and not path.is_dir():
                raise ModelError(f"{path}: is no file, but a device or a pipe. Take another model.")
            if path.name in ("tokenizer.json", "spiece.model") and path.stat().st_size > _MAX_TOKENIZER_BYTES:
                raise ModelError(f"{path}: has more than {_MAX_TOKENIZER_BYTES:,} bytes. Take another model.")
            if number == _MAX_FILES:
                break
    except OSError as error:
        raise ModelError(f"{folder}: cannot be read ({error.strerror}). Check its permissions.") from error
    check_manifest(
        folder,
        of=lambda file: not file.is_file() or file.stat().st_size <= _MAX_CHECKED_BYTES,
        raised=ModelError,
        fix=f"{_FIX[:-1]}, or remove {MANIFEST} where you have changed the file yourself.",
    )


def check_config(config: Mapping[str, Any], folder: Path) -> None:
    """Make sure that a configuration can be computed with, and does not ask for more weights than its folder has.

    Raises:
        ModelError: It is not so; the message names the setting.
    """
    file = folder / "config.json"
    for name, most in _SIZES.items():
        value = config.get(name)
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            raise ModelError(f"{file}: {name} is {str(value)[:40]}. It has to be a number from 1 to {most:,}. {_FIX}")
    for name in ("layer_norm_epsilon", "layer_norm_eps", "dropout_rate", "hidden_dropout_prob"):
        value = config.get(name)
        if value is not None and (type(value) not in (int, float) or not 0 <= value < 1):
            raise ModelError(f"{file}: {name} is {str(value)[:40]}. It has to be a number from 0 to below 1. {_FIX}")
    _check_names(config, file)
    buckets = config.get("relative_attention_num_buckets") or 32
    distance = config.get("relative_attention_max_distance") or 128
    if config.get("model_type") in T5_FAMILY and (buckets < 4 or distance <= buckets // 2):
        raise ModelError(
            f"{file}: relative_attention_max_distance {distance} and relative_attention_num_buckets {buckets} give no "
            f"positions. {_FIX}"
        )
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    least = _least_weights(config)
    if stored and least > max(stored, _FEW_WEIGHTS):  # one byte a weight at the least
        raise ModelError(
            f"{file}: describes a model of {least:,} weights or more, and its weights have {stored:,} bytes. {_FIX}"
        )


def _check_names(config: Mapping[str, Any], file: Path) -> None:
    """Make sure that tokens are numbers of the vocabulary, and activations names."""
    for name in ("decoder_start_token_id", "pad_token_id"):
        value = config.get(name)
        if value is not None and (type(value) is not int or not 0 <= value < config.get("vocab_size", 2**24)):
            raise ModelError(f"{file}: {name} is {str(value)[:40]}. It has to be the number of a token. {_FIX}")
    for name in ("feed_forward_proj", "hidden_act"):
        if not isinstance(config.get(name), str | None):
            raise ModelError(f"{file}: {name} is {str(config[name])[:40]}. It has to be a name. {_FIX}")


def _least_weights(config: Mapping[str, Any]) -> int:
    """Return how many weights an encoder of these sizes has at the least."""
    if config.get("model_type") in T5_FAMILY:
        width, inner = config.get("d_model", 1), config.get("num_heads", 1) * config.get("d_kv", 1)
        layers, hidden = config.get("num_layers", 1), config.get("d_ff", 1)
        return int(config.get("vocab_size", 1) * width + layers * width * (4 * inner + 2 * hidden))
    width, hidden = config.get("hidden_size", 1), config.get("intermediate_size", 1)
    layers = config.get("num_hidden_layers", 1)
    tables = config.get("vocab_size", 1) + config.get("max_position_embeddings", 1)
    return int(tables * width + layers * (4 * width**2 + 2 * width * hidden))


def check_tokenizer(tokenizer: Any, where: Path | str, *, vocab_size: int | None) -> None:
    """Make sure that a tokenizer belongs to a model, and does not make texts many times as long.

    Args:
        tokenizer: The tokenizer.
        where: Where it is.
        vocab_size: How many tokens the model has; None where nobody knows.

    Raises:
        ModelError: It has more tokens than the model, which would have no vector for some; it doubles texts, or reads
            none.
    """
    num = len(tokenizer)
    if vocab_size is not None and num > vocab_size:
        raise ModelError(
            f"{where}: the tokenizer has {num:,} tokens, and the model {vocab_size:,}: it is another model's. {_FIX}"
        )
    backend = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = getattr(backend, "normalizer", None)
    growth = 1.0 if normalizer is None else _growth(json.loads(normalizer.__getstate__()))
    if growth > _MAX_GROWTH:
        raise ModelError(f"{where}: its normaliser makes a text up to {growth:,.0f} times as long. Take another model.")
    _check_reading(tokenizer, where, vocab_size)


def _check_reading(tokenizer: Any, where: Path | str, vocab_size: int | None) -> None:
    """Make sure that a tokenizer reads a text, and puts only tokens around it that there are."""
    try:
        ids = tokenizer.encode("a", add_special_tokens=True)
    except Exception as error:
        raise ModelError(f"{where}: its tokenizer cannot read a text ({error}). {_FIX}") from error
    except BaseException as error:  # the tokenizers library panics where its file contradicts itself
        if type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{where}: its tokenizer contradicts itself ({error}). {_FIX}") from error
    if vocab_size is not None and max(ids, default=0) >= vocab_size:
        raise ModelError(
            f"{where}: the tokenizer gives the token {max(ids):,}, and the model has {vocab_size:,}. {_FIX}"
        )


def _growth(normalizer: Mapping[str, Any]) -> float:
    """Return how many times as long a text can become by its replacements."""
    parts = normalizer.get("normalizers")
    if isinstance(parts, list):
        return math.prod(_growth(part) for part in parts)
    if normalizer.get("type") != "Replace":
        return 1.0
    pattern, content = normalizer.get("pattern") or {}, len(normalizer.get("content") or "")
    if pattern.get("String"):
        return max(1.0, content / len(pattern["String"]))
    return 1.0 + content if content > 1 else 1.0  # a regular expression can match single letters


_USED = re.compile(r"(?:\w+\.)?(?:encoder|decoder)\.(?:block|layer|final_layer_norm)\b.*")
_NEVER_USED = re.compile(r".*\.(?:EncDecAttention\.relative_attention_bias\.weight|position_ids)")
"""What published checkpoints have besides their weights, and no forward pass reads."""


def check_unused(names: Iterable[str], folder: Path, *, decoder: bool) -> None:
    """Make sure that the weights which a configuration does not use are none of its transformer's layers.

    Heads, poolers and, without a decoder readout, the decoder may be left out; a layer of the encoder may not: the
    configuration is then that of another model.

    Args:
        names: The weights that nothing reads.
        folder: Where they are.
        decoder: Whether the decoder is read.

    Raises:
        ModelError: Some are.
    """
    unused = sorted(
        name
        for name in names
        if _USED.fullmatch(name) and not _NEVER_USED.fullmatch(name) and (decoder or ".decoder." not in f".{name}")
    )
    if unused:
        raise ModelError(
            f"{folder}: {len(unused)} weights are not used by its config.json, {unused[0]} first: it describes another "
            f"model. {_FIX}"
        )


def check_floats(weights: Mapping[str, "Tensor"], folder: Path) -> None:
    """Make sure that weights are stored as floating-point numbers.

    Raises:
        ModelError: One is stored as integers, which would be taken for the numbers that they stand for.
    """
    for name, weight in weights.items():
        if not weight.is_floating_point() and not _NEVER_USED.fullmatch(f".{name}"):
            stored = str(weight.dtype).removeprefix("torch.")
            raise ModelError(
                f"{folder}: the weight {name} is stored as {stored}, not as a floating-point number. {_FIX}"
            )
