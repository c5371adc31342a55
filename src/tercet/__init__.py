"""Sentence embeddings with T5-family encoders, and better encoders from unlabelled text."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tercet.errors import (
    DivergedError,
    InputError,
    ModelError,
    NonFiniteError,
    OutputError,
    RowError,
    SettingError,
    TercetError,
    TextError,
)

if TYPE_CHECKING:
    from tercet.encoder.model.encoder import Encoder
    from tercet.synthesis.synthesizer import Synthesizer

__version__ = "0.1.0"

__all__ = [
    "DivergedError",
    "Encoder",
    "InputError",
    "ModelError",
    "NonFiniteError",
    "OutputError",
    "RowError",
    "SettingError",
    "Synthesizer",
    "TercetError",
    "TextError",
]

# Imported on first use, so that `import tercet` and `tercet --help` stay instant.
_LAZY = {"Encoder": "tercet.encoder.model.encoder", "Synthesizer": "tercet.synthesis.synthesizer"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'tercet' has no attribute {name!r}")
