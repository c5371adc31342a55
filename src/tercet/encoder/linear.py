"""Matrix products with a weight that is prepared once, at three precisions; and a plain one that can be trained.

The prepared ones use operators of torch that are not public. Where a torch does not have them, or the machine cannot
run them, the same numbers come from public operators, more slowly.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Literal["none", "relu", "gelu", "gelu-tanh"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": lambda x: F.gelu(x, approximate="tanh"),
}

ACTIVATION_NAMES: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh"}
"""Which activation is meant by transformers' names."""

# how oneDNN calls them: name and algorithm
_ONEDNN = {"none": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh")}

_PACKED_ROWS = 2048
"""For how many rows at a time oneDNN lays out a weight."""

_LEAST = 1e-12
"""The least that a scale is made from: a row of zeros has one too."""


class Linear(Protocol):
    """`activation(x W^T + b)` for rows x."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product."""

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        """Return `to` plus the product; what was in `to` may be lost."""


class MakeLinear(Protocol):
    """Makes the products of one precision."""

    dtype: torch.dtype
    """What is computed in between products."""

    def __call__(self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none") -> Linear:
        """Prepare one weight [out, in]."""


def has_bf16() -> bool:
    """Return whether this CPU multiplies bf16 numbers itself."""
    return _has_operators("mkldnn", "_is_mkldnn_bf16_supported") and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_vnni() -> bool:
    """Return whether this CPU sums products of 8-bit numbers in 32 bits."""
    return bool(torch.cpu._is_vnni_supported())


class Trainable:
    """Products that gradients flow through, in a given number format."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype or torch.float32

    def __call__(self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none") -> "_Plain":
        """Take a weight as it is now."""
        return _Plain(weight.to(self.dtype), None if bias is None else bias.to(self.dtype), activation)


class Prepared:
    """Products in fp32 or bf16, the weight laid out by oneDNN once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none") -> Linear:
        """Prepare one weight."""
        weight, bias = weight.to(self.dtype).contiguous(), None if bias is None else bias.to(self.dtype)
        if _can_prepare(self.dtype):
            return _OneDnn(weight, bias, activation)
        return _Plain(weight, bias, activation)


class Quantized:
    """Products of 8-bit numbers: a scale for each row of the weight, and one for each token, found as it comes."""

    dtype = torch.float32

    def __call__(self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none") -> "_Int8":
        """Quantise one weight."""
        return _Int8(weight, bias, activation)


class _Plain:
    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation) -> None:
        self.weight, self.bias, self.activation = weight, bias, ACTIVATIONS[activation]

    def __call__(self, x: Tensor) -> Tensor:
        return self.activation(F.linear(x.to(self.weight.dtype), self.weight, self.bias))

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        return to + self(x)


class _OneDnn:
    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_ROWS)
        self.bias, self.dtype = bias, weight.dtype
        self.activation, self.algorithm = _ONEDNN[activation]

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(self.dtype), self.weight, self.bias, self.activation, [], self.algorithm
        )
        return y

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        if to.dtype != self.dtype:
            return to.add_(self(x))
        y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x.to(self.dtype), to, self.weight, self.bias, "add")
        return y


class _Int8:
    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation) -> None:
        scale = weight.float().abs().amax(1).clamp_min(_LEAST) / 127
        quantized = (weight / scale[:, None]).round().to(torch.int8)
        # Without VNNI two neighbouring products are summed in 16 bits, which tokens of 8 bits would overflow.
        self.level = 127 if has_vnni() else 63
        self.multiply = _int8_product(quantized, scale, middle=self.level + 1)
        self.bias, self.activation = bias, ACTIVATIONS[activation]

    def __call__(self, x: Tensor) -> Tensor:
        y, scale = self._scaled(x)
        return self.activation(y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale))

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        y, scale = self._scaled(x)
        return (to if self.bias is None else to.add_(self.bias)).addcmul_(y, scale)

    def _scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the product of the quantised tokens, and the scale of each token."""
        scale = x.abs().amax(1, keepdim=True).float().clamp_min_(_LEAST).div_(self.level)
        tokens = x.div(scale).round_().to(torch.int8).view(torch.uint8).add_(self.level + 1)
        return self.multiply(tokens), scale


def _int8_product(weight: Tensor, scale: Tensor, *, middle: int) -> Callable[[Tensor], Tensor]:
    """Return what multiplies 8-bit tokens, stored with `middle` for zero, with an 8-bit weight, into fp32."""
    if not _has_operators("onednn", "qlinear_prepack", "qlinear_pointwise"):
        return lambda tokens: F.linear(tokens.float() - middle, weight.float()) * scale
    packed, zeros = torch.ops.onednn.qlinear_prepack(weight, None), torch.zeros(len(weight), dtype=torch.int64)

    def multiply(tokens: Tensor) -> Tensor:
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            tokens, 1.0, middle, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return y

    return multiply


def _can_prepare(dtype: torch.dtype) -> bool:
    usable = dtype == torch.float32 or has_bf16()
    return usable and _has_operators("mkldnn", "_reorder_linear_weight", "_linear_pointwise")


def _has_operators(library: str, *names: str) -> bool:
    """Return whether this torch has operators that are not public, and was built with what runs them."""
    operators = getattr(torch.ops, library)
    return torch.backends.mkldnn.is_available() and all(hasattr(operators, name) for name in names)
