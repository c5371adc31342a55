"""The stage `reweight`: directions in which texts that belong together differ count less."""

import numpy as np
import pytest
import yaml
from scipy import linalg
from sentence_transformers import SentenceTransformer

from tercet import Encoder, InputError
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.stages.reweight import reweight

TEXTS = [f"{a} {b} {c}" for a in ("a man", "two dogs", "stocks") for b in ("plays", "run") for c in ("music", "deep")]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("settings", [{}, {"projection": 24}])
def test_vectors_are_multiplied_by_the_inverse_root_of_the_covariance(tiny, settings):
    encoder = tiny("t5", **settings)
    before = encoder.embed(TEXTS)
    pairs = np.random.default_rng(0).normal(size=(500, encoder.dim)).astype(np.float32)
    pairs[:, 0] *= 5
    reweight(encoder, pairs, shrink=0.5)
    covariance = np.cov(pairs.T)
    mean = np.trace(covariance) / len(covariance)
    wanted = linalg.inv(linalg.sqrtm(covariance / mean + 0.5 * np.eye(len(covariance))).real)
    assert np.abs(encoder.embed(TEXTS) - unit(before @ wanted)).max() < 1e-5
    assert encoder.settings.projection == encoder.dim


def test_the_size_of_vectors_that_are_not_normalised_stays(tiny):
    encoder = tiny("t5", normalize=False)
    before = encoder.embed(TEXTS)
    reweight(encoder, np.random.default_rng(0).normal(size=(9_000, encoder.dim)).astype(np.float32), shrink=1.0)
    assert np.abs(encoder.embed(TEXTS) - before).max() < 0.05 * np.abs(before).max()  # all directions differ alike


@pytest.mark.parametrize("family", ["t5", "bert"])
def test_a_recipe_reweights_its_start_for_other_tools_too(tiny, tmp_path, family):
    tiny(family).save(tmp_path / "start")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(" ".join(TEXTS).split(), 12)) for _ in range(60)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    recipe = {
        "start": str(tmp_path / "start"),
        "stages": [
            {"name": "spans", "views": {"sentences": str(tmp_path / "texts.txt"), "num_views": 3}},
            {"name": "reweight", "reweight": {"rows": "@spans", "precision": "exact"}},
        ],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    run = run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "run")
    start, made = (Encoder.load(path, device="cpu") for path in (tmp_path / "start", tmp_path / "run" / "encoder"))
    assert run.stages[-1].notes["num_pairs"] > 100
    peer = SentenceTransformer(str(tmp_path / "run" / "encoder"), device="cpu")
    assert np.abs(peer.encode(texts) - made.embed(texts)).max() < 1e-5

    def spread_of_parts(encoder):
        """Return how far the halves of texts are from each other, compared with halves of other texts."""
        a, b = (encoder.embed([" ".join(text.split()[half]) for text in texts]) for half in (slice(6), slice(6, 12)))
        return np.mean((a - b) ** 2) / np.mean((a - np.roll(b, 1, axis=0)) ** 2)

    assert spread_of_parts(made) < spread_of_parts(start)


def test_too_few_pairs_are_an_error(tiny, tmp_path):
    tiny("t5").save(tmp_path / "start")
    (tmp_path / "pairs.tsv").write_text("anchor\tpositive\n" + "".join(f"a {i}\tb {i}\n" for i in range(99)))
    stage = {"name": "reweight", "reweight": {"rows": str(tmp_path / "pairs.tsv")}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"start": str(tmp_path / "start"), "stages": [stage]}))
    with pytest.raises(InputError, match=r"pairs\.tsv: has 99 pairs, and 100 are needed"):
        run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "run")
