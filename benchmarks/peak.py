"""How fast this machine multiplies matrices, and how many multiplications an encoder needs.

Runs as a worker: the best of the operators that torch has for a number format, on the products of a T5-base layer.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from tercet.encoder.forward.linear import has_bf16
from tercet.evaluation.timing import seconds_of
from workers import THREADS, serve

NUM_TOKENS = 2048
PRODUCTS = ((768, 3 * 768), (768, 768), (768, 3072), (3072, 768))
"""Width in and out: queries, keys and values; attention output; feed-forward in and out."""

Product = Callable[[], Tensor]


def plain(x: Tensor, weight: Tensor) -> Product:
    """The public operator."""
    return partial(torch.nn.functional.linear, x, weight)


def prepacked(x: Tensor, weight: Tensor) -> Product:
    """OneDNN with a weight in its own layout."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, len(x))
    return partial(torch.ops.mkldnn._linear_pointwise, x, packed, None, "none", [], "")


def quantised(x: Tensor, weight: Tensor) -> Product:
    """OneDNN's quantised product with a packed weight, the result in fp32."""
    unsigned = (_as_int8(x).short() + 128).to(torch.uint8)
    packed = torch.ops.onednn.qlinear_prepack(_as_int8(weight), None)
    scales, zeros = torch.full((len(weight),), 0.01), torch.zeros(len(weight), dtype=torch.int64)
    scale, zero, to_fp32 = 0.01, 128, (1.0, 0, torch.float32)
    return partial(
        torch.ops.onednn.qlinear_pointwise, unsigned, scale, zero, packed, scales, zeros, None, *to_fp32, "none", [], ""
    )


OPERATORS: dict[str, tuple[torch.dtype, tuple[Callable[[Tensor, Tensor], Product], ...]]] = {
    "fp32": (torch.float32, (plain, prepacked)),
    "bf16": (torch.bfloat16, (plain, prepacked)),
    "int8": (torch.float32, (quantised,)),
}


def _as_int8(x: Tensor) -> Tensor:
    return (x * 30).round().clamp(-127, 127).to(torch.int8)


def peaks() -> dict[str, Any]:
    """Return the most GFLOP/s of each number format that the processor has."""
    found = {}
    flops = sum(2 * NUM_TOKENS * wide_in * wide_out for wide_in, wide_out in PRODUCTS)
    with torch.inference_mode():
        for precision, (dtype, operators) in OPERATORS.items():
            if precision == "bf16" and not has_bf16():
                continue  # emulated products are many times slower, and nobody's peak
            seconds = []
            for operator in operators:
                with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError):  # this torch lacks it
                    products = _products(operator, dtype)
                    seconds.append(sum(min(seconds_of(product) for _ in range(4)) for product in products))
            if seconds:
                found[precision] = flops / min(seconds) / 1e9
    return {"gflops": found}


@cache
def _products(operator: Callable[[Tensor, Tensor], Product], dtype: torch.dtype) -> list[Product]:
    return [
        operator(torch.randn(NUM_TOKENS, wide_in).to(dtype), torch.randn(wide_out, wide_in).to(dtype))
        for wide_in, wide_out in PRODUCTS
    ]


def flops_of(config: Any, lengths: Sequence[int], *, decoder: bool) -> float:
    """Return how many operations a T5 encoder needs for texts of those lengths, and a one-step decoder behind it.

    Counted are matrix products over real tokens: linear layers, scores and weighted sums of attention.
    """
    width, inner = config.d_model, config.num_heads * config.d_kv
    feed_forward = (3 if config.is_gated_act else 2) * width * config.d_ff
    tokens, squares = sum(lengths), sum(n * n for n in lengths)
    per_layer = tokens * (4 * width * inner + feed_forward) + 2 * squares * inner
    total = config.num_layers * per_layer
    if decoder:  # self-attention has two products left, cross-attention four and no keys or values for the tokens
        per_text = 6 * width * inner + feed_forward
        total += config.num_decoder_layers * (len(lengths) * per_text + 2 * tokens * config.num_heads * width)
    return 2.0 * total


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    serve({"run": peaks})
