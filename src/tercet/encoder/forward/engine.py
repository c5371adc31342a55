"""How an encoder computes its vectors: packed on a CPU, padded by transformers' own forward everywhere else."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from tercet.encoder.forward.batches import pad
from tercet.encoder.forward.fitting import fit_bytes, kept_bytes, sample_packs
from tercet.encoder.forward.int8 import Bytes, Quantized
from tercet.encoder.forward.linear import MakeLinear, Prepared, has_bf16
from tercet.encoder.forward.pack import Pack
from tercet.encoder.forward.vectors import Shape, make_packed, packed_shape, read_out
from tercet.encoder.model.readouts import T5_FAMILY
from tercet.encoder.model.tokens import Tokens
from tercet.encoder.model.tower import Head, Tower
from tercet.errors import NonFiniteError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tercet.encoder.folder.weights import StoredTower

PRECISIONS = ("exact", "fast", "int8", "fp16")

PACKED: dict[str, MakeLinear] = {"exact": Prepared(torch.float32), "fast": Prepared(torch.bfloat16)}
"""How products are made in the packed forward, by precision; in int8 by what was found of the model."""

BROKEN = "The model's weights or numbers are broken: check how it was trained or converted."

AUTOCAST = {"exact": None, "fast": torch.bfloat16, "fp16": torch.float16}
"""What transformers' own forward computes in, by precision."""


class Engine(Protocol):
    """Token ids to vectors, at one precision."""

    padded: bool
    """Whether texts are filled up to the longest of their batch."""

    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of texts before normalisation, in fp32; texts of equal length should be side by side."""


def choose_engine(
    tower: "Tower | StoredTower",
    precision: str,
    *,
    load: Callable[[], Tower],
    tokens: Tokens,
    fingerprint: Callable[[], str],
) -> Engine:
    """Return the fastest way to compute vectors at a precision.

    Packed where `packed_shape` says so, for every precision that a packed forward has; padded otherwise.
    """
    weights = tower.weights()
    shape = packed_shape(tower.config, weights)
    if shape is not None and precision in PACKED:
        return PackedEngine(shape, weights, tower.head, PACKED[precision])
    if shape is not None and precision == "int8":
        check_finite(weights)
        found = kept_bytes(fingerprint(), lambda: find_bytes(shape, weights, tower.head, tokens))
        return PackedEngine(shape, weights, tower.head, Quantized(found))
    if precision == "int8":
        raise SettingError("precision 'int8': is for models on a CPU, of the usual kinds. Take 'exact' or 'auto'.")
    return PaddedEngine(load(), AUTOCAST[precision], tokens.pad_id)


def find_bytes(shape: Shape, weights: Mapping[str, Tensor], head: Head, tokens: Tokens) -> dict[str, Bytes]:
    """Return how the inputs of a model's products become bytes."""
    fixed = {name: weight.detach() for name, weight in weights.items()}
    with torch.inference_mode(), evaluating(head):
        return fit_bytes(
            lambda make: make_packed(shape, fixed, make, decoder=head.needs_decoder),
            lambda model, pack: read_out(model, pack, head),
            sample_packs(lambda texts: tokens(texts)[0], _num_words(weights)),
        )


def _num_words(weights: Mapping[str, Tensor]) -> int:
    """Return how many words the vocabulary of a transformer has."""
    names = ("shared.weight", "embeddings.word_embeddings.weight")
    return next(len(weights[name]) for name in names if name in weights)


class PackedEngine:
    """The packed forward, with weights prepared for one precision."""

    padded = False

    def __init__(self, shape: Shape, weights: Mapping[str, Tensor], head: Head, make: MakeLinear) -> None:
        with torch.no_grad():
            fixed = {name: weight.detach() for name, weight in weights.items()}
            check_finite(fixed)
            self.model = make_packed(shape, fixed, make, decoder=head.needs_decoder)
        self.head = head

    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of texts before normalisation; several threads may call it at once."""
        with torch.inference_mode():
            return read_out(self.model, Pack.of(rows), self.head)


class PaddedEngine:
    """transformers' own forward, on any device."""

    padded = True

    def __init__(self, tower: Tower, dtype: torch.dtype | None, pad_id: int) -> None:
        self.tower, self.dtype, self.pad_id = tower, dtype, pad_id

    def __call__(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of texts before normalisation."""
        device = next(self.tower.parameters()).device
        input_ids, mask = pad(rows, pad_id=self.pad_id)
        compute = nullcontext() if self.dtype is None else torch.autocast(device.type, self.dtype)
        with torch.inference_mode(), compute, evaluating(self.tower):
            return self.tower.raw(input_ids.to(device), mask.to(device))


def check_finite(weights: dict[str, Tensor]) -> None:
    """Raise NonFiniteError if a weight is not finite: a prepared product with a ReLU would make 0 of it."""
    for name, weight in weights.items():
        if not bool(weight.isfinite().all()):
            layer = name.removesuffix(".weight").removesuffix(".bias")
            raise NonFiniteError(f"a vector is not finite: it went wrong in backbone.{layer}. {BROKEN}")


def resolve_precision(precision: str, *, model_type: str, device: torch.device) -> str:
    """Return what a precision stands for on this machine: `auto` is `fast` or `exact`.

    Raises:
        SettingError: There is no such precision, or not for this model.
    """
    if precision == "auto":
        bf16 = torch.cuda.is_bf16_supported() if device.type == "cuda" else device.type == "cpu" and has_bf16()
        return "fast" if bf16 else "exact"
    if precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise SettingError(f"precision {precision!r}: there is none of that name. Known: {known}, auto.")
    if precision == "fp16" and model_type in T5_FAMILY:
        raise SettingError(
            "precision 'fp16': T5 was trained in bf16 and overflows to NaN in fp16, in its feed-forward layers first. "
            "Take 'fast' (bf16) or 'exact'."
        )
    return precision


@contextmanager
def evaluating(module: torch.nn.Module) -> "Iterator[None]":
    """Switch a module to evaluation for a while."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
