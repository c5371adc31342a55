"""Readouts: how the hidden states of each kind of transformer become one vector. No torch is needed for the table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tercet.errors import SettingError

T5_FAMILY = ("t5", "mt5", "umt5")
BERT_FAMILY = ("bert", "roberta", "xlm-roberta")

When = Literal["always", "training"]


@dataclass(frozen=True)
class Readout:
    """How the transformer's hidden states become one vector."""

    pooling: Literal["first", "mean", "decoder"]
    """The first token, the mean over tokens, or the first decoder output."""

    layers: tuple[int, ...] = (-1,)
    """Which hidden states are averaged first; 0 is the output of the embedding layer, -1 the last layer."""

    has_mlp: bool = False
    """Whether a dense layer with tanh follows."""


READOUTS = {
    "enc-first": Readout("first"),
    "enc-mean": Readout("mean"),
    "encdec-first": Readout("decoder"),
    "cls": Readout("first"),
    "cls-mlp": Readout("first", has_mlp=True),
    "mean": Readout("mean"),
    "first-last-mean": Readout("mean", layers=(1, -1)),
    "embedding-last-mean": Readout("mean", layers=(0, -1)),
    "top2-mean": Readout("mean", layers=(-2, -1)),
}


def describe_readout(name: str) -> dict[str, Any]:
    """Return what a model's files say about its readout."""
    layers = READOUTS[name].layers
    return {"readout": name} if layers == (-1,) else {"readout": name, "layers": [*layers]}


def stored_readout(described: Mapping[str, Any]) -> str:
    """Return the name of the readout that a model's files describe.

    Before they told the layers, `first-last-mean` was the mean of the embedding's output and the last layer.
    """
    name: str = described["readout"]
    return "embedding-last-mean" if name == "first-last-mean" and "layers" not in described else name


_T5_NAMES = {"cls": "enc-first", "mean": "enc-mean"}
_T5_ONLY = ("enc-first", "enc-mean", "encdec-first")


def check_readout(name: str, model_type: str) -> str:
    """Return the readout's name for this kind of transformer: on a T5, `mean` and `cls` are `enc-mean` and `enc-first`.

    Raises:
        SettingError: There is no such readout, or not for this kind of transformer.
    """
    if name not in READOUTS:
        raise SettingError(f"readout {name!r}: there is none of that name. Take one of: {', '.join(READOUTS)}.")
    if model_type in T5_FAMILY:
        return _T5_NAMES.get(name, name)
    if name in _T5_ONLY:
        others = ", ".join(other for other in READOUTS if other not in _T5_ONLY)
        raise SettingError(f"readout {name!r}: is for T5, this is a {model_type} model. Take one of: {others}.")
    return name
