"""Shorter vectors that are trained, too: the loss, what the folder says, and scores by how many numbers are used."""

import json

import pytest
import torch
import yaml
from sentence_transformers.sentence_transformer import losses

from tercet import Encoder, SettingError
from tercet.data.rows.kinds import ParallelPair, Triplet
from tercet.evaluation.evaluate import evaluate
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.contrast import Contrast, ContrastSettings, contrastive_loss
from tercet.training.objectives.distill import Distill, DistillSettings, pair_loss, similarity_loss
from tercet.training.objectives.parallel import Parallel, ParallelSettings
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe

TRIPLETS = [Triplet(f"A man plays {i}.", f"Somebody plays {i}.", (f"Nobody {i}.",)) for i in range(4)]
COMPUTE = ComputeSettings(precision="exact")


def still(encoder):
    """Switch dropout off, so that losses can be compared."""
    for module in encoder.tower.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return encoder


def test_the_loss_is_the_mean_over_widths_of_what_sentence_transformers_sums(tiny):
    encoder = still(tiny("bert", readout="mean"))
    settings = ContrastSettings(dims=(16, 8), temperature=0.05)
    found = Contrast(encoder, settings, compute=COMPUTE).step(TRIPLETS).loss
    columns = [
        [row.anchor for row in TRIPLETS],
        [row.positive for row in TRIPLETS],
        [row.negatives[0] for row in TRIPLETS],
    ]
    vectors = [torch.from_numpy(encoder.embed(column)) for column in columns]

    class Fixed(torch.nn.Module):
        def get_embedding_dimension(self):
            return encoder.dim

        def forward(self, features):
            return {"sentence_embedding": features["vectors"]}

    fixed = Fixed()
    loss = losses.MatryoshkaLoss(fixed, losses.MultipleNegativesRankingLoss(fixed, scale=20), [encoder.dim, 16, 8])
    wanted = loss([{"vectors": each} for each in vectors], torch.empty(0)).item()
    assert found == pytest.approx(wanted / 3, rel=1e-4)
    assert found != pytest.approx(contrastive_loss(*vectors).item(), rel=1e-3)


def test_without_dims_nothing_changes(tiny):
    losses = [
        Contrast(still(tiny("bert", readout="mean")), ContrastSettings(dims=dims), compute=COMPUTE).step(TRIPLETS).loss
        for dims in ((), (16,))
    ]
    vectors = [
        torch.from_numpy(tiny("bert", readout="mean").embed(list(column)))
        for column in zip(*((row.anchor, row.positive, row.negatives[0]) for row in TRIPLETS), strict=True)
    ]
    assert losses[0] == pytest.approx(contrastive_loss(*vectors).item(), rel=1e-4) != losses[1]
    assert "dims" not in ContrastSettings().model_dump()


def test_distilled_vectors_are_as_similar_as_the_teacher_s_at_every_width(tiny):
    encoder = still(tiny("bert", readout="mean"))
    texts = list(dict.fromkeys(text for row in TRIPLETS[:1] for text in (row.anchor, row.positive, *row.negatives)))
    targets = torch.randn(len(texts), encoder.dim, generator=torch.Generator().manual_seed(0))
    settings = DistillSettings(dims=(8,), cosine_weight=0, pair_weight=2.0)
    found = Distill(encoder, lambda _keys: targets, settings, compute=COMPUTE).step(TRIPLETS[:1]).loss
    vectors, keys = torch.from_numpy(encoder.embed(texts)), torch.arange(len(texts))
    pairs = torch.combinations(keys)
    wanted = sum(
        similarity_loss(vectors[:, :width], targets, keys=keys, temperature=0.05)
        + 2 * pair_loss(vectors[:, :width], targets, pairs)
        for width in (None, 8)
    )
    assert found == pytest.approx(wanted.item() / 2, rel=1e-4)


def test_translations_are_contrasted_at_every_width(tiny):
    encoder, rows = still(tiny("bert", readout="mean")), [ParallelPair(f"one {i}", f"two {i}") for i in range(4)]
    source = torch.randn(4, encoder.dim, generator=torch.Generator().manual_seed(0))
    settings = ParallelSettings(dims=(8,), temperature=0.1, learn_temperature=False)
    found = Parallel(encoder, lambda _texts: source, settings, compute=COMPUTE).step(rows).loss
    vectors = torch.from_numpy(encoder.embed([row.target for row in rows]))
    wanted = [contrastive_loss(vectors[:, :width], source[:, :width], temperature=0.1).item() for width in (None, 8)]
    assert found == pytest.approx(sum(wanted) / 2, rel=1e-4)


@pytest.fixture
def run(tiny, tmp_path):
    tiny("bert", readout="mean").save(tmp_path / "start")
    (tmp_path / "rows.tsv").write_text("anchor\tpositive\n" + "".join(f"A man {i}\tDogs {i}\n" for i in range(8)))

    def go(folder="run", **more):
        stage = {"rows": str(tmp_path / "rows.tsv"), "batch": 4, "steps": 1, "learning_rate": 1e-3, **more}
        content = {"start": str(tmp_path / "start"), "stages": [{"name": "a", "contrast": stage}]}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
        run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / folder)
        return tmp_path / folder / "encoder"

    return go


def test_the_folder_says_which_shorter_vectors_were_trained(run):
    folder = run(dims=[16, 8])
    assert json.loads((folder / "tercet.json").read_text())["dims"] == [16, 8]
    assert "the first 16, 8 numbers (`--dims`)" in (folder / "README.md").read_text()
    loaded = Encoder.load(folder)
    assert loaded.trained_dims == (16, 8)
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), truncate_dim=8).encode(["A man."], normalize_embeddings=True)
    assert abs(theirs - loaded.embed(["A man."], dims=8)).max() < 1e-5
    assert not (run("other") / "tercet.json").exists()


def test_dims_that_do_not_fit_are_refused(run):
    for dims in ([10_000], [8, 8]):
        with pytest.raises(SettingError, match=r"stages\.a\.dims .+ Give different, fewer"):
            run(f"run{dims[0]}", dims=dims)


def test_scores_by_dims_are_those_of_shorter_vectors(tiny, tmp_path):
    (tmp_path / "pairs.tsv").write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"A man {i}\tDogs {i * i}\t{i % 5}\n" for i in range(20))
    )
    encoder = tiny("t5")
    found = evaluate(encoder, tasks=f"scored:{tmp_path / 'pairs.tsv'}", dims=[16, 4], cache=False)
    [result] = found.tasks.values()
    for dims, score in result["by_dims"].items():

        class Short:
            def encode(self, texts, dims=int(dims)):
                return encoder.embed(texts, dims=dims)

        [own] = evaluate(Short(), tasks=f"scored:{tmp_path / 'pairs.tsv'}").tasks.values()
        assert score == pytest.approx(own["score"], abs=1e-4)
    assert {"16", "4"} == result["by_dims"].keys()
    with pytest.raises(SettingError, match=r"dims \[9999\]"):
        evaluate(encoder, tasks=f"scored:{tmp_path / 'pairs.tsv'}", dims=[9999])
