"""Products of 8-bit numbers, how their bytes are found, and what is kept of it."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tercet import Encoder
from tercet.encoder.forward import engine, fitting, int8
from tercet.encoder.forward.fitting import Watching, fit_bytes
from tercet.encoder.forward.int8 import Bytes, Quantized
from tercet.encoder.forward.linear import ACTIVATIONS, as_input
from tercet.encoder.forward.pack import Pack


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def numbers(*size, seed=2):
    return torch.randn(*size, generator=torch.manual_seed(seed))


def bytes_of(x, weight, activation="none"):
    """Return the bytes that are found for the inputs of one product."""
    watching = Watching(every=1)
    watching(weight, None, activation, name="one")(x)
    watching.products["one"].find()
    return watching.products["one"].known


@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 1, 24)])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu-tanh"])
@pytest.mark.parametrize("has_operators", [True, False])
def test_a_product_is_close_and_each_row_is_computed_by_itself(bias, activation, has_operators, monkeypatch):
    if not has_operators:
        monkeypatch.setattr(int8, "has_operators", lambda *_names: False)
    x, weight = numbers(50, 40) * torch.logspace(-1, 1, 40) + 0.3, numbers(24, 40, seed=3) + 0.2
    product = Quantized({"one": bytes_of(x, weight)})(weight, bias, activation, name="one")
    given = as_input(product, x)
    plain = F.linear(x, weight, bias)
    error = (product(given).float() - ACTIVATIONS[activation](plain)).norm(dim=1) / plain.norm(dim=1)
    assert float(error.max()) < 0.03
    for row in (0, 17, 49):
        torch.testing.assert_close(product(given[row : row + 1]), product(given)[row : row + 1], atol=1e-5, rtol=0)
    if activation == "none":
        added = product.add(given, torch.ones(50, 24))
        torch.testing.assert_close(added, product(given).float() + 1, atol=0.2, rtol=0.01)  # in bf16 without `add`


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh"])
@pytest.mark.parametrize("has_operators", [True, False])
def test_a_product_gives_the_bytes_of_the_next_one(activation, has_operators, monkeypatch):
    if not has_operators:
        monkeypatch.setattr(int8, "has_operators", lambda *_names: False)
    x, up, down = (
        numbers(60, 32),
        numbers(48, 32, seed=3) * torch.logspace(-1, 0.3, 48)[:, None],
        numbers(16, 48, seed=4),
    )
    watching = Watching(every=1)
    last = watching(down, name="down")
    first = watching.between(up, None, activation, name="up", to=last)
    wanted = last(first(x))
    for product in watching.products.values():
        product.find()
    known = {name: product.known for name, product in watching.products.items()}
    make = Quantized(known)
    last = make(down, name="down")
    first = make.between(up, None, activation, name="up", to=last)
    hidden = first(as_input(first, x))
    assert hidden.dtype == torch.uint8
    assert as_input(last, hidden) is hidden
    error = (last.add(hidden, torch.zeros(60, 16)) - wanted).norm(dim=1) / wanted.norm(dim=1)
    assert float(error.max()) < 0.06


def test_columns_of_very_different_size_keep_their_part():
    """With one step for all columns and nothing evened out, the small ones would all be 0."""
    sizes = torch.logspace(-4, 2, 40)
    x, weight = numbers(200, 40) * sizes, numbers(24, 40, seed=3) / sizes
    product = Quantized({"one": bytes_of(x, weight)})(weight, name="one")
    wanted = x @ weight.T
    error = (product(as_input(product, x)).float() - wanted).norm(dim=1) / wanted.norm(dim=1)
    assert float(error.max()) < 0.05


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_inputs_out_of_range_are_cut_and_overflow_nowhere(size):
    product = Quantized({"one": Bytes(torch.ones(16), 128)})(torch.eye(16), name="one")
    x = torch.linspace(-1, 1, 16).expand(3, 16) * size
    torch.testing.assert_close(product(x).float(), x.round().clamp(-128, 127), atol=0.6, rtol=0.01)


def test_without_vnni_weights_have_seven_bits(monkeypatch):
    weight = numbers(24, 40)
    assert int8.rounded_rows(weight)[0].abs().max() == (127 if int8.has_vnni() else 63)
    monkeypatch.setattr(int8, "has_vnni", lambda: False)
    rounded, scale = int8.rounded_rows(weight)
    assert rounded.abs().max() == 63
    torch.testing.assert_close(rounded * scale[:, None], weight, atol=float(scale.max()) / 2 + 1e-6, rtol=0)


def test_products_that_do_not_bear_8_bits_are_left_out():
    """One of two products has inputs of which one token is 100,000 times another: its step would be too coarse."""
    weights = {"wide": numbers(32, 32), "even": numbers(32, 32, seed=3)}

    def make_model(make):
        return {name: make(weight, name=name) for name, weight in weights.items()}

    def outputs(model, pack):
        x = numbers(len(pack.ids), 32, seed=5)
        y = model["even"](x) / 6
        return y + model["wide"](torch.where(pack.ids[:, None] == 0, 1e5, 1.0) * numbers(len(pack.ids), 32, seed=6))

    packs = [Pack(torch.arange(50), ((1, 50),)) for _ in range(fitting.NUM_PACKS)]
    assert set(fit_bytes(make_model, outputs, packs)) == {"even"}


def test_what_was_found_is_kept_under_a_hash_of_the_weights(tiny, sentences, tmp_path, monkeypatch):
    tiny("t5").save(tmp_path / "model")
    first = Encoder.load(tmp_path / "model", device="cpu").embed(sentences, precision="int8")
    kept = list((tmp_path / "cache" / "tercet" / "int8").iterdir())
    assert len(kept) == 1
    find = engine.find_bytes
    monkeypatch.setattr(engine, "find_bytes", lambda *_args: pytest.fail("was found again"))
    again = Encoder.load(tmp_path / "model", device="cpu").embed(sentences, precision="int8")
    np.testing.assert_array_equal(again, first)
    monkeypatch.setattr(engine, "find_bytes", find)
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    with torch.no_grad():
        encoder.tower.backbone.encoder.block[0].layer[1].DenseReluDense.wo.weight.mul_(3)
    assert np.abs(encoder.embed(sentences, precision="int8") - first).max() > 1e-3
    assert len(list((tmp_path / "cache" / "tercet" / "int8").iterdir())) == 2


@pytest.mark.parametrize("family", ["t5", "t5-1.1", "bert"])
def test_a_vector_does_not_depend_on_what_is_embedded_with_it_or_before_it(tiny, sentences, family, tmp_path):
    tiny(family).save(tmp_path / "model")
    together = Encoder.load(tmp_path / "model", device="cpu").embed(sentences, precision="int8")
    (tmp_path / "cache").rename(tmp_path / "other-cache")
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    alone = np.stack([encoder.embed(text, precision="int8") for text in reversed(sentences)])[::-1]
    np.testing.assert_allclose(alone, together, atol=2e-3)


def test_a_prompt_changes_nothing_about_the_bytes(tiny, sentences):
    first, second = tiny("t5"), tiny("t5")
    first.prefixed("query: ").embed(sentences, precision="int8")
    np.testing.assert_array_equal(first.embed(sentences, precision="int8"), second.embed(sentences, precision="int8"))
