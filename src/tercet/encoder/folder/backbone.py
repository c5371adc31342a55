"""The transformer inside an encoder: read from a folder, or fresh with a given shape."""

import contextlib
import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open

from tercet.encoder.folder.eight_bits import EIGHT_BITS, read_eight_bits, write_eight_bits
from tercet.encoder.folder.limits import check_config, check_floats, check_unused
from tercet.encoder.model.readouts import BERT_FAMILY, T5_FAMILY
from tercet.encoder.model.shapes import shape_config
from tercet.encoder.model.tower import Dense
from tercet.encoder.model.trusted import read_json, refuse_code
from tercet.errors import ModelError, SettingError
from tercet.storage.files import atomic_write, write_json
from tercet.storage.hashing import sha256_of_json
from tercet.storage.locks import hold

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# model type: (encoder, encoder-decoder), names in transformers
_CLASSES = {
    "t5": ("T5EncoderModel", "T5Model"),
    "mt5": ("MT5EncoderModel", "MT5Model"),
    "umt5": ("UMT5EncoderModel", "UMT5Model"),
    "bert": ("BertModel", None),
    "roberta": ("RobertaModel", None),
    "xlm-roberta": ("XLMRobertaModel", None),
}

NO_CHANGE = ("_name_or_path", "architectures", "dtype", "output_hidden_states", "torch_dtype", "transformers_version")
"""Parts of a configuration that change nothing about what a model computes."""

# what transformers and its libraries raise for files that are broken
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RuntimeError,
    SafetensorError,
)


def model_type_of(folder: Path) -> str:
    """Return the kind of transformer in a folder.

    Raises:
        ModelError: It is none that Tercet knows.
    """
    config = read_json(folder / "config.json", kind=dict)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in _CLASSES:
        raise ModelError(f"{folder}: holds a {model_type!r} model. Tercet reads: {', '.join(_CLASSES)}.")
    check_config(config, folder)
    return model_type


def backbone_class(model_type: str, *, decoder: bool) -> Any:
    """Return the transformers class of a model type.

    Raises:
        SettingError: A decoder is wanted and this type has none.
    """
    import transformers

    name = _CLASSES[model_type][decoder]
    if name is None:
        raise SettingError(f"readout 'encdec-first': a {model_type} model has no decoder. Take another readout.")
    return getattr(transformers, name)


def fresh_backbone(shape: str, *, decoder: bool, vocab_size: int, pad_id: int, seed: int) -> "PreTrainedModel":
    """Return a randomly initialised transformer of a named shape, the same one for the same seed."""
    config = shape_config(shape, vocab_size=vocab_size)
    config.pad_token_id = pad_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model_class = backbone_class(config.model_type, decoder=decoder)
        backbone: PreTrainedModel = model_class(config, **_without_pooler(config.model_type))
    backbone.eval()
    return backbone


def load_backbone(folder: Path, *, decoder: bool, convert_pickle: bool) -> tuple["PreTrainedModel", torch.dtype]:
    """Return the transformer in a folder, in fp32, and the number format that it is stored in.

    Raises:
        ModelError: Weights are missing, incomplete or pickled, or the checkpoint has no decoder where one is wanted.
    """
    model_type = model_type_of(folder)
    model_class = backbone_class(model_type, decoder=decoder)
    backbone, missing = read_model(folder, model_class, convert_pickle=convert_pickle, **_without_pooler(model_type))
    if missing:
        if decoder and all(key.startswith("decoder.") for key in missing):
            raise ModelError(f"{folder}: has no decoder weights. Take the readout enc-mean or enc-first.")
        raise ModelError(f"{folder}: {len(missing)} weights are missing, {missing[0]} first. Fetch the model again.")
    return backbone.eval(), stored_dtype(folder)


def read_model(
    folder: Path, model_class: Any, *, convert_pickle: bool, **options: Any
) -> tuple["PreTrainedModel", list[str]]:
    """Return a model of transformers in fp32, and the names of the weights that its folder lacks.

    Raises:
        ModelError: The weights are pickled or cannot be read, or the folder wants foreign code.
    """
    from huggingface_hub.errors import StrictDataclassError

    refuse_code(folder, "config.json")
    require_safetensors(folder, "model", convert_pickle=convert_pickle)
    _check_stored_floats(folder)
    with quiet_transformers():
        try:
            model, report = model_class.from_pretrained(
                **_source_of(folder, model_class, options),
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except (*_UNREADABLE, StrictDataclassError) as error:
            raise ModelError(f"{folder}: the weights cannot be read ({error}). Fetch the model again.") from error
    check_unused(
        report["unexpected_keys"], folder, decoder=hasattr(model, "decoder") and "num_decoder_layers" not in options
    )
    return model, sorted(report["missing_keys"])


def _check_stored_floats(folder: Path) -> None:
    """Check the formats of weights, one at a time; those with 8 bits and a scale are in a file of another name."""
    for file in folder.glob("model*.safetensors"):
        if file.name != EIGHT_BITS:
            with contextlib.suppress(SafetensorError, OSError), safe_open(file, framework="pt") as weights:
                for name in weights.keys():
                    if not weights.get_slice(name).get_dtype().startswith(("F", "BF")):
                        check_floats({name: weights.get_tensor(name)}, folder)


def _source_of(folder: Path, model_class: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return where transformers finds a model: in its folder, or, where the weights have 8 bits, in memory."""
    stored = folder / EIGHT_BITS
    if not stored.exists():
        return {"pretrained_model_name_or_path": folder, **options}
    config = model_class.config_class.from_pretrained(folder, local_files_only=True, **options)
    return {"pretrained_model_name_or_path": None, "config": config, "state_dict": read_eight_bits(stored)}


def write_model(model: "PreTrainedModel", folder: Path, *, dtype: torch.dtype, config: Mapping[str, Any]) -> None:
    """Write a model of transformers with its weights in a number format, and further keys in its configuration.

    `torch.int8` stands for 8 bits with a scale for each row, which Tercet alone reads.
    """
    if dtype == torch.int8:
        folder.mkdir(parents=True, exist_ok=True)
        with quiet_transformers():
            model.config.save_pretrained(folder)
        write_eight_bits(model.state_dict(), folder / EIGHT_BITS)
        write_json(folder / "config.json", {**read_json(folder / "config.json"), "dtype": "float32", **config})
        return
    stored = dict[int, torch.Tensor]()  # tied weights stay one tensor, and are written once
    weights = {key: stored.setdefault(value.data_ptr(), value.to(dtype)) for key, value in model.state_dict().items()}
    with quiet_transformers():
        model.save_pretrained(folder, state_dict=weights)
    file = folder / "config.json"
    overflows = dtype == torch.float16 and model.config.model_type in T5_FAMILY
    computed = "float32" if overflows else str(dtype).removeprefix("torch.")  # what transformers computes in
    write_json(file, {**read_json(file), "dtype": computed, **config})


def backbone_from_weights(
    config: dict[str, Any], weights: dict[str, torch.Tensor], *, decoder: bool
) -> "PreTrainedModel":
    """Return the transformer with a configuration and all of its weights."""
    model_class = backbone_class(config["model_type"], decoder=decoder)
    settings = model_class.config_class.from_dict(config)
    with quiet_transformers():
        backbone: PreTrainedModel = model_class.from_pretrained(
            None, config=settings, state_dict=weights, dtype=torch.float32, **_without_pooler(config["model_type"])
        )
    backbone.eval()
    return backbone


def stored_dtype(folder: Path) -> torch.dtype:
    """Return the number format of a folder's weights. What they are computed in is another thing."""
    with safe_open(min(folder.glob("model*.safetensors")), framework="pt") as weights:
        dtypes = (weights.get_tensor(name).dtype for name in weights.keys())
        return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.float32)


def sha256_of_weights(weights: Mapping[str, torch.Tensor], *, described: object) -> str:
    """Return one SHA-256 over weights, in fp32, and over what else is said about a model, as JSON."""
    digest = hashlib.sha256(sha256_of_json(described).encode())
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_pooler(folder: Path) -> Dense | None:
    """Return the pooler of a BERT-like checkpoint as the MLP of `cls-mlp`, or None where there is none.

    SimCSE's published checkpoints keep their MLP there.
    """
    if model_type_of(folder) not in BERT_FAMILY:
        return None
    found: dict[str, torch.Tensor] = {}
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    for file in [whole] if whole.exists() else [folder / name for name in {*read_json(index)["weight_map"].values()}]:
        with safe_open(file, framework="pt") as weights:
            names = [key for key in weights.keys() if "pooler.dense." in key]
            found |= {key.rpartition(".")[2]: weights.get_tensor(key).float() for key in names}
    if not found:
        return None
    weight, bias = found["weight"], found["bias"]
    mlp = Dense(weight.shape[1], weight.shape[0], bias=True, activation="tanh")
    mlp.linear.load_state_dict({"weight": weight, "bias": bias})
    return mlp


def require_safetensors(folder: Path, name: str, *, convert_pickle: bool) -> None:
    """Make sure that a folder's weights are safetensors, and convert pickled ones once where that is allowed.

    Raises:
        ModelError: There are none, or only pickled ones, which could run code.
    """
    index = folder / f"{name}.safetensors.index.json"
    if index.exists():
        _check_index(index)
    if any(file.exists() for file in (index, folder / f"{name}.safetensors", folder / EIGHT_BITS)):
        return
    pickles = sorted(folder.glob("pytorch_model*.bin"))
    if not pickles:
        raise ModelError(f"{folder}: has no {name}.safetensors. Is the model folder complete?")
    if not convert_pickle:
        raise ModelError(
            f"{pickles[0]}: is a pickle, which can run code when it is read. "
            "Take a safetensors release, or set convert_pickle=True to convert it once (weights only)."
        )
    _convert_pickles(pickles, folder / f"{name}.safetensors")


def _check_index(index: Path) -> None:
    content = read_json(index)
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(re.fullmatch(r"[\w.-]+\.safetensors", str(f)) for f in files.values()):
        raise ModelError(f"{index}: names files that are no safetensors of this folder. Take another release.")


def _convert_pickles(pickles: list[Path], target: Path) -> None:
    """Write pickled weights as safetensors. Of several processes one does it, and the others wait for the file."""
    lock = target.with_name(".converting.lock")
    with hold(lock, wait=True):
        try:
            if not target.exists():
                _convert(pickles, target)
        finally:
            lock.unlink(missing_ok=True)


def _convert(pickles: list[Path], target: Path) -> None:
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for file in pickles:
        tensors |= _read_pickle(file)
    storages = set[int]()
    for key, value in tensors.items():  # what is there under two names is written under both
        storage = value.untyped_storage().data_ptr()
        tensors[key] = value.clone() if storage in storages else value.contiguous()
        storages.add(storage)
    with atomic_write(target) as stream:
        save_file(tensors, stream.name, {"format": "pt"})


def _read_pickle(file: Path) -> dict[str, torch.Tensor]:
    """Return the weights in a file, which stay there until they are used."""
    try:
        with warnings.catch_warnings(action="ignore"):
            loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zipfile(file))
    except Exception as error:  # a pickle can be broken in many ways
        raise ModelError(
            f"{file}: holds more than weights, or is broken, and was not read. Take a safetensors release."
        ) from error
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise ModelError(f"{file}: holds something else than named weights. Take a safetensors release.")
    return loaded


def _without_pooler(model_type: str) -> dict[str, bool]:
    return {} if model_type in T5_FAMILY else {"add_pooling_layer": False}


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' bars and loading report: what matters of them is checked here."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
