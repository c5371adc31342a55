"""How the inputs of a model's products become bytes: found once per model, on texts of our own, and kept.

Half of the texts are sentences of many kinds (sample.txt), half are tokens drawn from the vocabulary, so that nothing
depends on what is embedded first. Inputs keep their whole range: to cut its ends makes errors smaller on average, and
larger at the worst.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from tercet.encoder.forward.int8 import LEAST, MIDDLE, Bytes, rounded_rows
from tercet.encoder.forward.linear import ACTIVATIONS, Activation, Linear, MakeLinear, Prepared
from tercet.encoder.forward.pack import Pack
from tercet.storage.user_cache import cache_folder, cached_folder

MOST_TOKENS, NUM_PACKS = 40, 5
"""How many tokens are drawn at most for a text, and how many packs there are."""

KEPT_INPUTS = 512
"""About how many inputs of each product are kept to find its bytes by."""

MOST_LOSS = 0.002
"""How far below 1 the cosine of a vector with its exact one may be."""

VERSION = 1
"""Of how bytes are found: what was kept by another one is found anew."""

_Model = TypeVar("_Model")


class Watched:
    """A product in fp32 that remembers some of what it is given, and then can do as if it had 8 bits."""

    columns = None

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation, *, every: int) -> None:
        self.weight, self.bias, self.activation, self.every = weight.float(), bias, activation, every
        self.before: Activation | None = None
        """The activation whose output is the input; None where it is another input."""
        self.inputs: list[Tensor] = []
        self.largest = torch.zeros(weight.shape[1])
        self.known: Bytes | None = None
        self.rounds = False
        """Whether it does as if it had 8 bits."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the product."""
        return ACTIVATIONS[self.activation](self._product(x))

    def add(self, x: Tensor, to: Tensor) -> Tensor:
        """Return `to` plus the product."""
        return to.add_(self._product(x))

    def _product(self, x: Tensor) -> Tensor:
        if self.known is None:
            self.largest = torch.maximum(self.largest, x.abs().amax(0))
            self.inputs.append(x[:: self.every].clone())
        if self.known is None or not self.rounds:
            return F.linear(x, self.weight, self.bias)
        numbers, scale = rounded_rows(self.weight / self.known.columns)
        x = (x * self.known.columns).round_().clamp_(-self.known.zero, 255 - self.known.zero)
        return F.linear(x, numbers * scale[:, None], self.bias)

    def find(self) -> None:
        """Find how its inputs become bytes."""
        x = torch.cat(self.inputs)
        heights = self.weight.abs().amax(0).clamp_min(LEAST)
        even = torch.ones_like(heights)
        if self.before in (None, "relu"):  # what is multiplied before a GELU is not multiplied after it
            even = (heights / self.largest.clamp_min(LEAST)).sqrt()
        high = float((self.largest * even).max())
        low = -high if self.before is None else min(0.0, float(x.amin()))
        step = max(high - low, LEAST) / 254
        self.known = Bytes(even / step, MIDDLE if self.before is None else round(-low / step))
        self.inputs.clear()


class Watching(Prepared):
    """Makes products in fp32 that remember one input of so many, by name."""

    def __init__(self, *, every: int) -> None:
        super().__init__(torch.float32)
        self.every = every
        self.products: dict[str, Watched] = {}

    def __call__(
        self, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none", *, name: str = ""
    ) -> Linear:
        """Prepare one weight."""
        if not name:
            return super().__call__(weight, bias, activation)
        self.products[name] = Watched(weight, bias, activation, every=self.every)
        return self.products[name]

    def between(self, weight: Tensor, bias: Tensor | None, activation: Activation, *, name: str, to: Linear) -> Linear:
        """Prepare one weight, and note what the next product's input is."""
        if isinstance(to, Watched):
            to.before = activation
        return self(weight, bias, activation, name=name)


def sample_packs(tokenize: Callable[[list[str]], list[list[int]]], num_words: int) -> list[Pack]:
    """Return packs of the texts that bytes are found on.

    Args:
        tokenize: Gives the ids of texts, with what is before and after every text.
        num_words: How many words the vocabulary has.
    """
    generator = torch.Generator().manual_seed(0)
    lines = Path(__file__).with_name("sample.txt").read_text(encoding="utf-8").splitlines()
    rows = tokenize(lines)
    empty, word = tokenize(["", "a"])
    before = next((i for i, pair in enumerate(zip(empty, word, strict=False)) if pair[0] != pair[1]), len(empty))
    for length in torch.randint(1, MOST_TOKENS, (len(lines),), generator=generator).tolist():
        drawn = torch.randint(num_words, (length,), generator=generator).tolist()
        rows.append(empty[:before] + drawn + empty[before:])
    rows.sort(key=len)
    return [Pack.of(rows[start::NUM_PACKS]) for start in range(NUM_PACKS)]


def fit_bytes(
    make_model: Callable[[MakeLinear], _Model], outputs: Callable[[_Model, Pack], Tensor], packs: Sequence[Pack]
) -> dict[str, Bytes]:
    """Return how inputs become bytes, by the name of the product; those that do not bear it are left out.

    Args:
        make_model: Makes the model at a precision.
        outputs: Computes vectors with it.
        packs: The texts.
    """
    watching = Watching(every=max(1, sum(len(pack.ids) for pack in packs) // KEPT_INPUTS))
    model = make_model(watching)
    exact, products = [outputs(model, pack) for pack in packs], watching.products
    for product in products.values():
        product.find()

    def loss(rounded: Collection[str], num_packs: int) -> float:
        """Return 1 less the lowest cosine with these products in 8 bits."""
        for name, product in products.items():
            product.rounds = name in rounded
        pairs = zip(packs[:num_packs], exact, strict=False)
        return max(1 - float(F.cosine_similarity(outputs(model, pack), of).min()) for pack, of in pairs)

    chosen = sorted(products)
    if loss(chosen, NUM_PACKS) > MOST_LOSS:  # errors of different products add up, nearly
        losses = {name: loss([name], 1) for name in products}
        chosen.sort(key=lambda name: losses[name] / products[name].weight.numel())
        while sum(losses[name] for name in chosen) > MOST_LOSS:
            chosen.pop()
        while chosen and loss(chosen, NUM_PACKS) > MOST_LOSS:
            del chosen[-math.ceil(len(chosen) / 8) :]
    return {name: known for name in chosen if (known := products[name].known) is not None}


def kept_bytes(key: str, find: Callable[[], dict[str, Bytes]]) -> dict[str, Bytes]:
    """Return what was kept under a key, or find it and keep it in the user's cache."""

    def make(folder: Path) -> None:
        found = find()
        zeros = {name: known.zero for name, known in found.items()}
        save_file({name: known.columns for name, known in found.items()}, folder / "columns.safetensors")
        (folder / "zeros.json").write_text(json.dumps(zeros), encoding="utf-8")

    folder = cached_folder(cache_folder() / "int8" / f"{VERSION}-{key[:32]}", make)
    zeros = json.loads((folder / "zeros.json").read_text(encoding="utf-8"))
    columns: Mapping[str, Tensor] = load_file(folder / "columns.safetensors")
    return {name: Bytes(columns[name], zero) for name, zero in zeros.items()}
