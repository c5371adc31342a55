"""Weights in 8 bits: a format of ours for small downloads. They are read back to fp32; nothing is computed in it.

Each row of a matrix is stored as integers from -127 to 127 and one scale. The file has a name of its own, so that a
library that does not know the format finds no weights rather than wrong ones.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

EIGHT_BITS = "model.int8.safetensors"
"""The file in a model's folder."""

_SCALE = ".scale"
_MOST = 127


def write_eight_bits(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights, matrices in 8 bits and all else in fp32; what several names share is stored once."""
    stored = dict[str, Tensor]()
    seen = set[int]()
    for name, weight in weights.items():
        if weight.data_ptr() in seen:
            continue
        seen.add(weight.data_ptr())
        weight = weight.detach().float().cpu()
        if weight.ndim != 2:
            stored[name] = weight.clone()
            continue
        scale = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / _MOST
        stored[name] = (weight / scale[:, None]).round().to(torch.int8)
        stored[name + _SCALE] = scale
    save_file(stored, path, {"format": "pt"})


def read_eight_bits(path: Path) -> dict[str, Tensor]:
    """Return the weights of a file, in fp32.

    Raises:
        ValueError: A matrix has no scale, or one that does not fit.
        SafetensorError: The file is broken.
    """
    stored = load_file(path)
    weights = dict[str, Tensor]()
    for name, weight in stored.items():
        if weight.dtype == torch.int8:
            scale = stored.get(name + _SCALE)
            if scale is None or scale.shape != weight.shape[:1]:
                raise ValueError(f"{name} has no scale for each row")
            weights[name] = weight.float() * scale[:, None]
        elif not (name.endswith(_SCALE) and name.removesuffix(_SCALE) in stored):
            weights[name] = weight.float()
    return weights
