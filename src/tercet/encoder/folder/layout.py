"""Model folders on disk: the layout of sentence-transformers, read and written without it.

A folder is a list of modules: a transformer, a pooling, any number of dense layers, a normalisation. What their modules
cannot say (the decoder readout, a prompt after the text) is said by one module of ours, `TextReadout`, with its
settings in `tercet.json`; sentence-transformers loads it where tercet is installed and `trust_remote_code=True` is set.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tercet.encoder.folder.backbone import model_type_of, require_safetensors, write_model
from tercet.encoder.folder.card import CARD, card_of, public_name
from tercet.encoder.folder.limits import check_files, check_floats
from tercet.encoder.model.prompts import SLOT, Prompt
from tercet.encoder.model.readouts import BERT_FAMILY, READOUTS, T5_FAMILY, When, describe_readout, stored_readout
from tercet.encoder.model.tower import Dense, Tower
from tercet.encoder.model.trusted import read_json
from tercet.errors import ModelError, OutputError
from tercet.storage.files import atomic_folder, write_json
from tercet.storage.manifest import write_manifest

if TYPE_CHECKING:
    from tercet.encoder.model.tokens import Tokens

OWN_MODULE = "tercet.encoder.st.TextReadout"
OWN_FILE = "tercet.json"
EXPORT_FILE = "exported.json"

_ACTIVATIONS = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
}
_POOLING = {"first": "cls", "mean": "mean"}
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass
class Stored:
    """What a model folder says about an encoder, its transformer's weights aside."""

    transformer: Path
    """The folder with the transformer and the tokenizer."""

    readout: str | None = None
    """None for a plain transformers checkpoint, which does not say."""

    mlp: Dense | None = None
    mlp_when: When = "always"
    dense: list[Dense] = field(default_factory=list)
    normalize: bool = True
    prompt: str | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    """Prefixes that the folder has names for."""

    max_tokens: int | None = None
    lowercase: bool = False
    dtype: torch.dtype = torch.float32
    """The number format of the weights."""

    trained_dims: tuple[int, ...] = ()
    """How many of the first numbers of a vector were trained to be good vectors by themselves."""

    ours: bool = False
    """Whether Tercet wrote the folder."""


def read_folder(folder: Path, *, convert_pickle: bool = False) -> Stored:
    """Read the settings and dense layers of a model folder.

    Raises:
        ModelError: A file is missing or unreadable, or a module is none that Tercet knows; no code of it is run.
    """
    check_files(folder)
    try:
        return _read_folder(folder, convert_pickle=convert_pickle)
    except (AttributeError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise ModelError(
            f"{folder}: a file of it is not as it should be ({error!r}). Fetch or save the model again."
        ) from error


def _read_folder(folder: Path, *, convert_pickle: bool) -> Stored:
    if not (folder / "modules.json").exists():
        if not (folder / "config.json").exists():
            raise ModelError(f"{folder}: is no model folder (no modules.json, no config.json). Name another.")
        return Stored(folder)
    entries = read_json(folder / "modules.json", kind=list)
    modules = [(_known_type(folder, entry), _inside(folder, entry["path"])) for entry in entries]
    kinds = [kind for kind, _ in modules]
    if not kinds or kinds[0] not in ("Transformer", "TextReadout"):
        raise ModelError(
            f"{folder / 'modules.json'}: does not start with a transformer. Tercet cannot read this model."
        )
    stored = Stored(modules[0][1], normalize=False)
    _read_limits(stored)
    _read_prompt(folder, stored)
    layers: tuple[int, ...] = (-1,)
    for kind, path in modules[1:]:
        if kind == "WeightedLayerPooling":
            layers = _read_layers(path, convert_pickle=convert_pickle)
        elif kind == "Pooling":
            stored.readout = _readout_name(stored.transformer, _read_pooling(path), layers)
        elif kind == "Dense":
            stored.dense.append(_read_dense(path, convert_pickle=convert_pickle))
        elif kind == "Normalize":
            stored.normalize = True
    _read_own(folder, stored)
    if stored.readout is None:
        raise ModelError(f"{folder / 'modules.json'}: names no pooling. Tercet cannot tell how vectors are read out.")
    return stored


def write_folder(
    folder: Path,
    tower: Tower,
    tokens: "Tokens",
    *,
    dtype: torch.dtype,
    prompts: dict[str, str],
    made_from: str | None = None,
    trained_dims: Sequence[int] = (),
) -> None:
    """Write an encoder as a model folder, with its card: whole or not at all."""
    with _safetensors_errors(folder), atomic_folder(folder) as target:
        write_transformer(target, tower, tokens, dtype=dtype)
        prompt = tokens.prompt
        own: dict[str, Any] = {"dims": [*trained_dims]} if trained_dims else {}
        modules = _reading_modules(target, tower, prompt, own, dtype)
        head = tower.head
        dense = head.dense_layers
        if head.mlp is not None and head.mlp_when == "always":
            dense.insert(0, head.mlp)
        elif head.mlp is not None:
            _write_dense(target / "mlp", head.mlp, dtype)
            own["training_mlp"] = "mlp"
        for layer in dense:
            path = f"{len(modules)}_Dense"
            _write_dense(target / path, layer, dtype)
            modules.append(("sentence_transformers.models.Dense", path))
        if head.normalize:
            path = f"{len(modules)}_Normalize"
            (target / path).mkdir()
            write_json(target / path / "config.json", {})
            modules.append(("sentence_transformers.models.Normalize", path))
        if own:
            write_json(target / OWN_FILE, own)
        entries = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (kind, path) in enumerate(modules)]
        write_json(target / "modules.json", entries)
        default = None
        if prompt.prefix and modules[0][0] != OWN_MODULE:
            default = next((name for name, prefix in prompts.items() if prefix == prompt.prefix), "default")
            prompts = {**prompts, default: prompt.prefix}
        write_json(
            target / "config_sentence_transformers.json",
            {
                "__version__": {"tercet": version("tercet")},
                "prompts": prompts,
                "default_prompt_name": default,
                "similarity_fn_name": "cosine",
            },
        )
        facts = _facts(tower, tokens, made_from, trained_dims)
        (target / CARD).write_text(card_of(facts, is_foreign=modules[0][0] == OWN_MODULE), encoding="utf-8")
        write_manifest(target, of=lambda file: file.name != CARD)


def _facts(tower: Tower, tokens: "Tokens", made_from: str | None, dims: Sequence[int]) -> dict[str, str]:
    """Return what a card says of an encoder."""
    num = sum(weight.numel() for weight in tower.parameters())
    length = ", of length 1" if tower.head.normalize else ""
    return {
        "architecture": f"{tower.backbone.config.model_type}, {num / 1e6:,.1f}M parameters",
        "vectors": f"{tower.head.width:,} numbers{length}; compare them by cosine",
        "shorter vectors": f"the first {', '.join(map(str, dims))} numbers (`--dims`)" if dims else "",
        "reads": f"up to {tokens.max_tokens:,} tokens",
        "readout": f"`{tower.head.readout}`",
        "prompt": f"`{tokens.prompt.setting}`" if tokens.prompt.setting else "",
        "made from": public_name(made_from),
    }


@contextlib.contextmanager
def _safetensors_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        raise OutputError(f"cannot write {folder}: {error}. Check the folder, its permissions and the disk.") from error


def write_transformer(folder: Path, tower: Tower, tokens: "Tokens", *, dtype: torch.dtype = torch.float32) -> None:
    """Write the first module of a model folder: transformer, tokenizer, and how much of a text it reads."""
    backbone = tower.backbone
    layers = READOUTS[tower.head.readout].layers
    write_model(backbone, folder, dtype=dtype, config={"output_hidden_states": True} if layers != (-1,) else {})
    tokens.tokenizer.save_pretrained(folder)
    limits: dict[str, Any] = {"max_seq_length": tokens.max_tokens, "do_lower_case": tokens.lowercase}
    if backbone.config.model_type in BERT_FAMILY:
        limits["model_args"] = {"add_pooling_layer": False}
    write_json(folder / "sentence_bert_config.json", limits)


def _reading_modules(
    folder: Path, tower: Tower, prompt: Prompt, own: dict[str, Any], dtype: torch.dtype
) -> list[tuple[str, str]]:
    """Write what turns tokens into a vector, and return it as (type, path): theirs where it can say it, else ours."""
    readout = READOUTS[tower.head.readout]
    if readout.pooling == "decoder" or prompt.suffix:
        own |= describe_readout(tower.head.readout) | {"prompt": prompt.setting}
        return [(OWN_MODULE, "")]
    width, num_layers = tower.backbone.config.hidden_size, tower.backbone.config.num_hidden_layers
    modules = [("sentence_transformers.models.Transformer", "")]
    if readout.layers != (-1,):
        path = "1_WeightedLayerPooling"
        weights = torch.zeros(num_layers + 1)
        weights[list(readout.layers)] = 1.0
        (folder / path).mkdir()
        config = {"word_embedding_dimension": width, "layer_start": 0, "num_hidden_layers": num_layers}
        write_json(folder / path / "config.json", config)
        save_file({"layer_weights": weights}, folder / path / "model.safetensors")
        modules.append(("sentence_transformers.models.WeightedLayerPooling", path))
    path = f"{len(modules)}_Pooling"
    (folder / path).mkdir()
    flags = {flag: mode == _POOLING[readout.pooling] for flag, mode in _POOLING_FLAGS.items()}
    write_json(folder / path / "config.json", {"word_embedding_dimension": width, **flags, "include_prompt": True})
    modules.append(("sentence_transformers.models.Pooling", path))
    return modules


def _known_type(folder: Path, entry: dict[str, Any]) -> str:
    """Return the class name of a module that Tercet knows. Nothing is imported: names are only compared."""
    path, kind = entry.get("type", ""), str(entry.get("type", "")).rpartition(".")[2]
    if path == OWN_MODULE:
        return kind
    theirs = ("Transformer", "Pooling", "Dense", "Normalize", "WeightedLayerPooling")
    if path.startswith("sentence_transformers.") and kind in theirs:
        return kind
    raise ModelError(
        f"{folder / 'modules.json'}: the module {path!r} is none that Tercet knows, and foreign code is never run. "
        f"Known: {', '.join(theirs)} of sentence-transformers."
    )


def _inside(folder: Path, path: str) -> Path:
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ModelError(f"{folder}: names the file {path!r} outside of the folder. Take another model.")
    return folder / path


def _read_limits(stored: Stored) -> None:
    file = stored.transformer / "sentence_bert_config.json"
    if file.exists():
        limits = read_json(file, kind=dict)
        stored.max_tokens = limits.get("max_seq_length")
        if not isinstance(stored.max_tokens, int | None):
            raise TypeError(f"max_seq_length {stored.max_tokens!r}")
        stored.lowercase = bool(limits.get("do_lower_case", False))


def _read_prompt(folder: Path, stored: Stored) -> None:
    file = folder / "config_sentence_transformers.json"
    config = read_json(file, kind=dict) if file.exists() else {}
    stored.ours = "tercet" in (config.get("__version__") or {})
    stored.prompts = config.get("prompts") or {}
    name = str(config.get("default_prompt_name"))
    if stored.prompts.get(name):
        stored.prompt = stored.prompts[name] + SLOT


def _read_own(folder: Path, stored: Stored) -> None:
    own = read_json(folder / OWN_FILE, kind=dict) if (folder / OWN_FILE).exists() else {}
    dims = own.get("dims", [])
    if not isinstance(dims, list) or not all(isinstance(each, int) for each in dims):
        raise TypeError(f"dims {dims!r}")
    stored.trained_dims = tuple(dims)
    if "readout" in own:
        stored.readout, stored.prompt = stored_readout(own), own["prompt"]
        if not isinstance(stored.readout, str) or not isinstance(stored.prompt, str | None):
            raise TypeError(f"readout {stored.readout!r}, prompt {stored.prompt!r}")
    starts_with_tanh = bool(stored.dense) and stored.dense[0].activation == "tanh"
    if "training_mlp" in own:
        stored.readout, stored.mlp_when = "cls-mlp", "training"
        stored.mlp = _read_dense(_inside(folder, own["training_mlp"]), convert_pickle=False)
    elif stored.readout in ("cls", "cls-mlp", "enc-first") and starts_with_tanh:
        stored.readout, stored.mlp = "cls-mlp", stored.dense.pop(0)


def _read_pooling(path: Path) -> str:
    config = read_json(path / "config.json", kind=dict)
    modes = config.get("pooling_mode") or [mode for flag, mode in _POOLING_FLAGS.items() if config.get(flag)]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in _POOLING.values():
        raise ModelError(f"{path / 'config.json'}: pooling {' + '.join(modes)!r}. Tercet reads mean and cls.")
    if not config.get("include_prompt", True):
        raise ModelError(
            f"{path / 'config.json'}: leaves the prompt out of the pooling. Tercet cannot read this model."
        )
    return str(modes[0])


def _readout_name(transformer: Path, mode: str, layers: tuple[int, ...]) -> str:
    pooling = "first" if mode == "cls" else mode
    t5 = model_type_of(transformer) in T5_FAMILY
    for name, readout in READOUTS.items():
        family_fits = t5 or not name.startswith("enc")
        if readout.pooling == pooling and readout.layers == layers and family_fits and not readout.has_mlp:
            return name
    raise ModelError(f"{transformer}: {mode} pooling over layers {layers}. Tercet has no such readout.")


def _read_layers(path: Path, *, convert_pickle: bool) -> tuple[int, ...]:
    require_safetensors(path, "model", convert_pickle=convert_pickle)
    weights = load_file(path / "model.safetensors")["layer_weights"]
    start = read_json(path / "config.json").get("layer_start", 0)
    num = start + len(weights)
    used = {start + i for i, weight in enumerate(weights.tolist()) if weight != 0.0}
    for readout in READOUTS.values():
        same_weight = len(set(weights[weights != 0].tolist())) == 1
        if same_weight and {layer % num for layer in readout.layers} == used:
            return readout.layers
    raise ModelError(f"{path}: weighs layers as no readout of Tercet does. Tercet cannot read this model.")


def _read_dense(path: Path, *, convert_pickle: bool) -> Dense:
    config = read_json(path / "config.json", kind=dict)
    names = {dotted: name for name, dotted in _ACTIVATIONS.items()}
    activation = names.get(config.get("activation_function", _ACTIVATIONS["tanh"]))
    inputs = config.get("module_input_name", "sentence_embedding")
    if activation is None or config.get("use_residual") or inputs != "sentence_embedding":
        raise ModelError(
            f"{path / 'config.json'}: a dense layer of a kind that Tercet does not have. "
            f"Known activations: {', '.join(_ACTIVATIONS.values())}."
        )
    require_safetensors(path, "model", convert_pickle=convert_pickle)
    layer = Dense(config["in_features"], config["out_features"], bias=config.get("bias", True), activation=activation)
    stored = load_file(path / "model.safetensors")
    check_floats(stored, path)
    weights = {key: value.float() for key, value in stored.items()}
    try:
        layer.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(f"{path}: weights and config.json do not agree ({error}). Fetch the model again.") from error
    return layer


def _write_dense(path: Path, layer: Dense, dtype: torch.dtype) -> None:
    path.mkdir()
    linear = layer.linear
    config = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": _ACTIVATIONS[layer.activation],
    }
    write_json(path / "config.json", config)
    weights = {key: value.to(dtype).contiguous().cpu() for key, value in layer.state_dict().items()}
    save_file(weights, path / "model.safetensors")
