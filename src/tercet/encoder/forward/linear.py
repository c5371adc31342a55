"""Matrix products with a weight that is prepared once, at three precisions; and a plain one that can be trained.

The prepared ones use operators of torch that are not public. Where a torch does not have them, or the machine cannot
run them, the same numbers come from public operators, more slowly.
"""

import math
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

# how oneDNN calls them: name and algorithm
_ONEDNN = {"none": ("none", ""), "relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu-tanh": ("gelu", "tanh")}

_PACKED_ROWS = 2048
"""For how many rows at a time oneDNN lays out a weight."""

_LEVELS = 254.9
"""How many steps lie between a token's least and greatest number; with 255, rounding could leave a byte's range."""

_MARGIN = 0.05
"""What is added to a zero before it is rounded, so that the ends of the range are equally far from a byte's."""

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

    def careful(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """Prepare one weight of a product whose errors grow in what follows."""


def has_bf16() -> bool:
    """Return whether this CPU multiplies bf16 numbers itself.

    oneDNN says so of every x86 CPU with AVX-512, and emulates them on those without AVX-512-BF16, slower than fp32.
    """
    if platform.machine().lower() in ("x86_64", "amd64"):
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
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

    careful = __call__


class Prepared:
    """Products in fp32 or bf16, the weight laid out by oneDNN once."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none") -> Linear:
        """Prepare one weight."""
        weight, bias = weight.to(self.dtype).contiguous(), None if bias is None else bias.to(self.dtype)
        if _can_prepare(self.dtype, activation):
            return _OneDnn(weight, bias, activation)
        return _Plain(weight, bias, activation)

    careful = __call__


class Quantized:
    """Products of 8-bit numbers: a scale for each row of the weight, and one for each token, found as it comes."""

    dtype = torch.float32

    def __call__(self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none") -> Linear:
        """Quantise one weight."""
        return _Int8(weight, bias, activation)

    def careful(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """Prepare one weight of a product that does not bear 8 bits, in bf16 or fp32."""
        return Prepared(torch.bfloat16 if has_bf16() else torch.float32)(weight, bias)


class _Plain:
    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation) -> None:
        self.weight, self.bias, self.activation = weight, bias, ACTIVATIONS[activation]

    def __call__(self, x: Tensor) -> Tensor:
        return self.activation(F.linear(x.to(self.weight.dtype), self.weight, self.bias))

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        if to.dtype != self.weight.dtype or self.bias is not None:
            return to.add_(self(x))
        return to.addmm_(x.to(self.weight.dtype), self.weight.T)


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
    """A product of 8-bit numbers.

    A token x is stored as bytes q with x = step (q - zero), its own step and zero. To take the zeros off the product,
    the weight gets further columns, together minus the sum of its others, and every token has its zero there.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation) -> None:
        # Without VNNI two neighbouring products are summed in 16 bits, which larger weights would overflow.
        largest = 127 if has_vnni() else 63
        scale = weight.float().abs().amax(1).clamp_min(_LEAST) / largest
        columns = (weight / scale[:, None]).round()
        self.in_width = columns.shape[1]
        columns = torch.cat([columns, _spread(-columns.sum(1), largest)], dim=1).to(torch.int8)
        self.width = columns.shape[1]
        fused = bias is None and activation == "relu"  # which does not mind being scaled afterwards
        self.multiply = _int8_product(columns, scale, relu=fused)
        self.bias, self.activation = bias, ACTIVATIONS["none" if fused else activation]

    def __call__(self, x: Tensor) -> Tensor:
        tokens, step = self._quantize(x)
        y = self.multiply(tokens)
        return self.activation(y.mul_(step) if self.bias is None else torch.addcmul(self.bias, y, step))

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        tokens, step = self._quantize(x)
        return (to if self.bias is None else to.add_(self.bias)).addcmul_(self.multiply(tokens), step)

    def _quantize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens as bytes [n, width], and the step of each [n, 1]."""
        x = x.float()  # a step in bf16 is so coarse that bytes overflow
        low, high = torch.aminmax(x, dim=1, keepdim=True)
        low, high = low.clamp_max(0), high.clamp_min(0)
        step = (high - low).clamp_min_(_LEAST).div_(_LEVELS)
        zero = low.div_(step).neg_().add_(_MARGIN).round_().sub_(128)
        # By way of signed bytes, which torch converts to much faster; the last step moves -128..127 to 0..255.
        tokens = torch.empty(len(x), self.width, dtype=torch.int8)
        tokens[:, : self.in_width] = torch.addcmul(zero, x, step.reciprocal()).round_()
        tokens[:, self.in_width :] = zero
        return tokens.view(torch.uint8).bitwise_xor_(128), step


def _spread(total: Tensor, largest: int) -> Tensor:
    """Return integer columns [n, k] that sum up to `total` [n], none of them larger than `largest`."""
    num = 16 * max(1, math.ceil(float(total.abs().max()) / largest / 16))
    even = total.div(num, rounding_mode="floor")
    return even[:, None] + (torch.arange(num) < (total - even * num)[:, None])


def _int8_product(weight: Tensor, scale: Tensor, *, relu: bool) -> Callable[[Tensor], Tensor]:
    """Return what multiplies bytes with an 8-bit weight, into fp32."""
    if not _has_operators("onednn", "qlinear_prepack", "qlinear_pointwise"):
        activation = ACTIVATIONS["relu" if relu else "none"]
        exact = weight.float()
        return lambda tokens: activation(F.linear(tokens.float(), exact) * scale)
    packed, zeros = torch.ops.onednn.qlinear_prepack(weight, None), torch.zeros(len(weight), dtype=torch.int64)
    name = "relu" if relu else "none"

    def multiply(tokens: Tensor) -> Tensor:
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            tokens, 1.0, 0, packed, scale, zeros, None, 1.0, 0, torch.float32, name, [], ""
        )
        return y

    return multiply


def _can_prepare(dtype: torch.dtype, activation: Activation) -> bool:
    """Return whether oneDNN's product is the fastest here: in fp32 MKL's is without AVX-512, activation aside."""
    in_fp32 = torch.cpu._is_avx512_supported() or activation != "none"
    faster = in_fp32 if dtype == torch.float32 else has_bf16()
    return faster and _has_operators("mkldnn", "_reorder_linear_weight", "_linear_pointwise")


def _has_operators(library: str, *names: str) -> bool:
    """Return whether this torch has operators that are not public, and was built with what runs them."""
    operators = getattr(torch.ops, library)
    return torch.backends.mkldnn.is_available() and all(hasattr(operators, name) for name in names)
