"""Matrix products with a weight that is prepared once, in fp32 and bf16; and a plain one that can be trained.

The prepared ones use operators of torch that are not public. Where a torch does not have them, or the machine cannot
run them, the same numbers come from public operators, more slowly.
"""

import platform
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

ONEDNN = {"none": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh")}
"""How oneDNN calls them: name and algorithm."""

_PACKED_ROWS = 2048
"""For how many rows at a time oneDNN lays out a weight."""


class Linear(Protocol):
    """`activation(x W^T + b)` for rows x."""

    @property
    def columns(self) -> Tensor | None:
        """What the columns of x are multiplied by before x is given; None for nothing."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product."""

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        """Return `to` plus the product; what was in `to` may be lost."""


class MakeLinear(Protocol):
    """Makes the products of one precision."""

    dtype: torch.dtype
    """What is computed in between products."""

    def __call__(
        self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none", *, name: str
    ) -> Linear:
        """Prepare one weight [out, in] of the product of that name."""

    def between(self, weight: Tensor, bias: Tensor | None, activation: Activation, *, name: str, to: Linear) -> Linear:
        """Prepare one weight of a product whose output is, after the activation, what another product takes."""


def as_input(linear: Linear, x: Tensor) -> Tensor:
    """Return x as a product takes it: with its columns multiplied, where that is not done yet."""
    return x if linear.columns is None or x.dtype == torch.uint8 else x * linear.columns


def scale_rows(value: Tensor, to: Linear) -> Tensor:
    """Return the rows of a weight or bias so that its product's output needs no `as_input` for the next product."""
    if to.columns is None:
        return value
    return value * (to.columns[:, None] if value.ndim > 1 else to.columns)


def has_bf16() -> bool:
    """Return whether this CPU multiplies bf16 numbers itself.

    oneDNN says so of every x86 CPU with AVX-512, and emulates them on those without AVX-512-BF16, slower than fp32.
    """
    if platform.machine().lower() in ("x86_64", "amd64"):
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return has_operators("mkldnn", "_is_mkldnn_bf16_supported") and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_vnni() -> bool:
    """Return whether this CPU sums products of 8-bit numbers in 32 bits."""
    return bool(torch.cpu._is_vnni_supported())


class Trainable:
    """Products that gradients flow through, in a given number format."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype or torch.float32

    def __call__(
        self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none", *, name: str = ""
    ) -> Linear:
        """Take a weight as it is now."""
        del name
        return _Plain(weight.to(self.dtype), None if bias is None else bias.to(self.dtype), activation)

    def between(self, weight: Tensor, bias: Tensor | None, activation: Activation, *, name: str, to: Linear) -> Linear:
        """Take a weight as it is now."""
        del to
        return self(weight, bias, activation, name=name)


class Prepared(Trainable):
    """Products in fp32 or bf16, the weight laid out by oneDNN once."""

    def __call__(
        self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none", *, name: str = ""
    ) -> Linear:
        """Prepare one weight."""
        if not _can_prepare(self.dtype, activation):
            return super().__call__(weight, bias, activation, name=name)
        weight, bias = weight.to(self.dtype).contiguous(), None if bias is None else bias.to(self.dtype)
        return _OneDnn(weight, bias, activation)


class _Plain:
    columns = None

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation) -> None:
        self.weight, self.bias, self.activation = weight, bias, ACTIVATIONS[activation]

    def __call__(self, x: Tensor) -> Tensor:
        return self.activation(F.linear(x.to(self.weight.dtype), self.weight, self.bias))

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        if to.dtype != self.weight.dtype or self.bias is not None:
            return to.add_(self(x))
        return to.addmm_(x.to(self.weight.dtype), self.weight.T)


class _OneDnn:
    columns = None

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_ROWS)
        self.bias, self.dtype = bias, weight.dtype
        self.activation, self.algorithm = ONEDNN[activation]

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


def _can_prepare(dtype: torch.dtype, activation: Activation) -> bool:
    """Return whether oneDNN's product is the fastest here: in fp32 MKL's is without AVX-512, activation aside."""
    in_fp32 = torch.cpu._is_avx512_supported() or activation != "none"
    faster = in_fp32 if dtype == torch.float32 else has_bf16()
    return faster and has_operators("mkldnn", "_reorder_linear_weight", "_linear_pointwise")


def has_operators(library: str, *names: str) -> bool:
    """Return whether this torch has operators that are not public, and was built with what runs them."""
    operators = getattr(torch.ops, library)
    return torch.backends.mkldnn.is_available() and all(hasattr(operators, name) for name in names)
