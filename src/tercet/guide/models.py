"""The verb `models`: which models can be named here, and what is known of them without loading one."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tercet.encoder.folder.names import EMBEDDED
from tercet.encoder.model.shapes import shape_names
from tercet.errors import ModelError
from tercet.storage.choices import DEFAULT_MODEL, DEFAULT_SYNTHESIZER


@dataclass(frozen=True)
class ModelInfo:
    """A model that can be named."""

    name: str
    """What `--model` takes."""

    kind: str
    """`encoder`, `synthesizer`, `hub` (in the cache of the hub) or `fresh` (random weights)."""

    dims: int | None = None
    """How many numbers a vector has."""

    max_tokens: int | None = None
    """How much of a text it reads."""

    megabytes: float | None = None
    about: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def models() -> list[ModelInfo]:
    """Return the models that need no download: embedded ones, those in the hub's cache, and shapes of fresh ones."""
    return [*map(_embedded, EMBEDDED), *_cached(), *(_fresh(name) for name in shape_names())]


def _embedded(name: str) -> ModelInfo:
    kind = "synthesizer" if name == DEFAULT_SYNTHESIZER else "encoder"
    try:
        folder = EMBEDDED[name]()
    except ModelError as error:
        return ModelInfo(name, kind, about=str(error))
    about = _about(folder) + (" The default." if name in (DEFAULT_MODEL, DEFAULT_SYNTHESIZER) else "")
    return _in_folder(name, kind, folder, about)


def _cached() -> list[ModelInfo]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    found = []
    for repository in sorted(repositories, key=lambda each: each.repo_id):
        if repository.repo_type == "model" and repository.revisions:
            newest = max(repository.revisions, key=lambda revision: revision.last_modified)
            found.append(_in_folder(repository.repo_id, "hub", newest.snapshot_path, "In the hub's cache."))
    return found


def _fresh(shape: str) -> ModelInfo:
    return ModelInfo(f"random:{shape}", "fresh", about="Random weights; needs a tokenizer.")


def _in_folder(name: str, kind: str, folder: Path, about: str) -> ModelInfo:
    config, limits = _json(folder / "config.json"), _json(folder / "sentence_bert_config.json")
    dense = sorted(folder.glob("*_Dense/config.json"))
    width = config.get("d_model") or config.get("hidden_size")
    dims = _json(dense[-1]).get("out_features", width) if dense else width
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    return ModelInfo(
        name,
        kind,
        dims=None if kind == "synthesizer" else dims,
        max_tokens=limits.get("max_seq_length"),
        megabytes=round(size, 1),
        about=about,
    )


def _about(folder: Path) -> str:
    """Return the first sentence of a model's card."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    text = text.split("---", 2)[2] if text.startswith("---") and text.count("---") > 1 else text
    prose = "\n".join("" if line.startswith("#") else line for line in text.splitlines())
    prose = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", prose)  # links
    paragraphs = (" ".join(part.split()) for part in prose.split("\n\n"))
    first = next((part for part in paragraphs if part[:1].isalpha()), "")
    sentence = re.split(r"[.:] ", first)[0].rstrip(":.")
    return f"{sentence}." if sentence else ""


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
