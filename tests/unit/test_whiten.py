"""Whitening against the same done by numpy on the vectors."""

from types import SimpleNamespace

import numpy as np
import pytest

from tercet import Encoder, SettingError
from tercet.data.feeding import rows as sources
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.stages.whiten import whiten

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


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the stage on texts, from `tmp_path / "start"`."""

    def go(texts, *changes):
        (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
        (tmp_path / "recipe.yaml").write_text(
            f"start: {tmp_path}/start\nstages: [{{name: even, whiten: {{rows: {tmp_path}/texts.txt}}}}]\n"
        )
        return run_recipe(read_recipe(tmp_path / "recipe.yaml", changes=changes), tmp_path / "run")

    return go


def test_the_stage_does_the_same_and_stores_what_it_was_told(tiny, run, tmp_path):
    start = tiny("t5", projection=8)
    start.save(tmp_path / "start")
    result = run(TEXTS, "stages.even.power=0.3", "stages.even.weights=float16")
    whiten(start, start.embed(TEXTS), 0.3)
    encoder = Encoder.load(result.encoder)
    np.testing.assert_allclose(encoder.embed(TEXTS), start.embed(TEXTS), atol=5e-3)
    assert result.stages[0].notes["num_texts"] == len(TEXTS)
    assert str(encoder.dtype) == "torch.float16"


def test_all_rows_are_drawn_from_however_many_there_are(tiny, run, tmp_path):
    tiny("t5", projection=8).save(tmp_path / "start")
    texts = [f"{text} {letter}" for text in TEXTS for letter in "ab"]
    assert run(texts).stages[0].notes["num_texts"] == len(texts) == 1280


@pytest.mark.parametrize("change", ["lora={}", "dropout=0.1"])
def test_settings_of_training_are_refused(run, change):
    with pytest.raises(SettingError, match=r"^stages\.even\.whiten\.\w+: there is no such setting"):
        run(TEXTS, f"stages.even.{change}")


def test_a_stream_is_refused_by_what_can_be_done_about_it(tiny, run, tmp_path, monkeypatch):
    tiny("t5", projection=8).save(tmp_path / "start")
    monkeypatch.setattr(
        sources, "HubRecords", lambda name, **_: SimpleNamespace(commit="first", names=("text",), use=len)
    )
    with pytest.raises(SettingError, match=r"^stages\.even\.rows: are streamed, without end\. Set stream: false"):
        run(TEXTS, 'stages.even.rows={"path": "hub:some/texts", "stream": true}')
