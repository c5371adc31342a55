"""Products of 8-bit numbers: how inputs become bytes is found once (fitting.py) and the same for every text.

An input x becomes `round(x * columns)`, within the range of a byte. `columns` evens out the columns of x, and the
weight has the inverse (SmoothQuant's idea): norms and the weights of the product before multiply by it at no cost. A
product whose output is all that the next one needs gives the bytes of that one itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.forward.linear import (
    ACTIVATIONS,
    ONEDNN,
    Activation,
    Linear,
    Prepared,
    has_bf16,
    has_operators,
    has_vnni,
)

MIDDLE = 128
"""The byte of 0 where inputs have either sign."""

LEAST = 1e-6
"""The least that a scale is made from: a column of zeros has one too."""


@dataclass(frozen=True)
class Bytes:
    """How the inputs of a product become bytes."""

    columns: Tensor
    """What each column is multiplied by before it is rounded [in]."""

    zero: int
    """The byte of 0."""


class Quantized(Prepared):
    """Products of 8-bit numbers for the inputs whose bytes are known, and bf16 or fp32 for the others.

    Args:
        bytes_of: How inputs become bytes, by the name of the product.
    """

    def __init__(self, bytes_of: Mapping[str, Bytes]) -> None:
        super().__init__(torch.bfloat16 if has_bf16() else torch.float32)
        self.bytes_of = bytes_of

    def __call__(
        self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none", *, name: str = ""
    ) -> Linear:
        """Prepare one weight."""
        known = self.bytes_of.get(name)
        if known is None:
            return super().__call__(weight, bias, activation, name=name)
        return _Int8(weight, bias, activation, known, gives=self.dtype)

    def between(self, weight: Tensor, bias: Tensor | None, activation: Activation, *, name: str, to: Linear) -> Linear:
        """Prepare one weight, whose product gives the bytes of the next one where both have 8 bits."""
        known = self.bytes_of.get(name)
        if known is None or not isinstance(to, _Int8):
            return self(weight, bias, activation, name=name)
        return _Int8(weight, bias, activation, known, gives=to)


class _Int8:
    """A product of 8-bit numbers.

    Args:
        weight: The weight [out, in].
        bias: What is added to the product.
        activation: What follows.
        known: How inputs become bytes.
        gives: The number format of the output, or the product that takes it as bytes.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, activation: Activation, known: Bytes, *, gives: "torch.dtype | _Int8"
    ) -> None:
        self.columns: Tensor = known.columns
        self.zero = known.zero
        weight = weight / self.columns
        bias = None if bias is None else bias.float()
        self.step, self.offset, self.dtype = 1.0, 0, torch.uint8
        if isinstance(gives, torch.dtype):
            self.dtype = gives
        elif activation == "relu":  # a multiple of its input gives the multiple of its output
            weight, bias = weight * gives.columns[:, None], None if bias is None else bias * gives.columns
            self.offset = gives.zero
        else:
            self.step, self.offset = 1 / float(gives.columns[0]), gives.zero
        numbers, self.scale = rounded_rows(weight)
        self.bias, self.activation = bias, activation
        self.packed = has_operators("onednn", "qlinear_prepack", "qlinear_pointwise")
        self.weight = torch.ops.onednn.qlinear_prepack(numbers.to(torch.int8), None) if self.packed else numbers
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product of bytes, or of inputs whose columns are multiplied."""
        if not self.packed:
            return self._rounded(ACTIVATIONS[self.activation](self._plain(x)))
        tokens, (name, algorithm) = self._bytes(x), ONEDNN[self.activation]
        weight, output = (self.weight, self.scale, self.zeros), (self.step, self.offset, self.dtype)
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            tokens, 1.0, self.zero, *weight, self.bias, *output, name, [], algorithm
        )
        return y

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        """Return `to` plus the product."""
        if not self.packed:
            return to.add_(self._plain(x))
        tokens, weight = self._bytes(x), (self.weight, self.scale, self.zeros)
        plain: tuple[Any, ...] = (1.0, 0, to.dtype, 1.0, 0, "sum", 1.0, "none", [], "")
        y: Tensor = torch.ops.onednn.qlinear_pointwise.binary(tokens, 1.0, self.zero, *weight, to, self.bias, *plain)
        return y

    def _bytes(self, x: Tensor) -> Tensor:
        """Return inputs as bytes, by way of signed ones, to which torch converts much faster."""
        if x.dtype == torch.uint8:
            return x
        x = x.float().round()
        signed = (x if self.zero == MIDDLE else x.add_(self.zero - MIDDLE)).clamp_(-128, 127).to(torch.int8)
        return signed.view(torch.uint8).bitwise_xor_(MIDDLE)

    def _plain(self, x: Tensor) -> Tensor:
        """Return the product before its activation, from public operators."""
        y = F.linear(self._bytes(x).float() - self.zero, self.weight) * self.scale
        return y if self.bias is None else y + self.bias

    def _rounded(self, y: Tensor) -> Tensor:
        """Return an output in its number format."""
        if self.dtype == torch.uint8:
            y = (y / self.step).round_().add_(self.offset).clamp_(0, 255)
        return y.to(self.dtype)


def rounded_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight as whole numbers [out, in], and the scale of each row [out].

    Without VNNI two neighbouring products are summed in 16 bits, which weights of more than 7 bits would overflow.
    """
    largest = 127 if has_vnni() else 63
    scale = weight.float().abs().amax(1).clamp_min(LEAST) / largest
    return (weight / scale[:, None]).round_(), scale
