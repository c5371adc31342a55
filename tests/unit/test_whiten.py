"""Whitening against the same done by numpy on the vectors."""

import numpy as np
import pytest

from tercet import Encoder, SettingError
from tercet.pipeline import run_recipe
from tercet.recipe import read_recipe
from tercet.stages.whiten import whiten

TEXTS = [
    f"{who} {what} {n}" for who in ("A man", "Dogs", "Stocks", "It") for what in ("run", "fell") for n in range(80)
]


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("power", [0, 0.2, 0.5])
def test_whitened_vectors_are_those_that_numpy_whitens(tiny, power):
    encoder = tiny("t5", projection=8)
    before = encoder.embed(TEXTS).astype(np.float64)
    variances = whiten(encoder, before, power)
    variance, directions = np.linalg.eigh(np.cov(before.T))
    np.testing.assert_allclose(variances, variance)
    floored = np.maximum(variance, variance.max() / 10_000)
    wanted = unit(before @ directions / floored**power @ directions.T)
    np.testing.assert_allclose(encoder.embed(TEXTS), wanted, atol=1e-4)


def test_a_direction_without_variance_is_not_blown_up(tiny):
    encoder = tiny("t5", projection=8)
    vectors = encoder.embed(TEXTS)
    vectors[:, 0] = 0
    whiten(encoder, vectors, 0.5)
    assert np.isfinite(encoder.embed(TEXTS)).all()


def test_an_encoder_that_ends_without_a_projection_is_refused(tiny):
    with pytest.raises(SettingError, match="whiten: is done in a projection"):
        whiten(tiny("t5"), np.eye(3, dtype=np.float32), 0.2)


def test_the_stage_does_the_same_and_stores_what_it_was_told(tiny, tmp_path):
    start = tiny("t5", projection=8)
    start.save(tmp_path / "start")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "recipe.yaml").write_text(
        f"start: {tmp_path}/start\n"
        f"stages: [{{name: even, whiten: {{rows: {tmp_path}/texts.txt, power: 0.3, weights: float16}}}}]\n"
    )
    result = run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "run")
    whiten(start, start.embed(TEXTS), 0.3)
    encoder = Encoder.load(result.encoder)
    np.testing.assert_allclose(encoder.embed(TEXTS), start.embed(TEXTS), atol=5e-3)
    assert result.stages[0].notes["num_texts"] == len(TEXTS)
    assert str(encoder.dtype) == "torch.float16"
