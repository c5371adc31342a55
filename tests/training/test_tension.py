"""Contrastive tension against sentence-transformers' loss on the same pairs."""

import copy

import pytest
import torch
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import ContrastiveTensionLoss

from tercet import Encoder, SettingError, train
from tercet.data.rows.kinds import Text
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.tension import Tension, TensionSettings

IN_PIECES = ComputeSettings(max_activation_gb=1e-9, max_batch_tokens=40)


def start(tiny, folder):
    """Return an encoder without dropout and another one that starts as it does."""
    tiny("bert", readout="mean", normalize=False).save(folder)
    encoders = [Encoder.load(folder) for _ in range(2)]
    for encoder in encoders:
        encoder.tower.eval()
    return encoders


def test_a_step_is_that_of_sentence_transformers(tiny, sentences, tmp_path):
    encoder, other = start(tiny, tmp_path / "start")
    with torch.no_grad():  # two encoders that are no longer equal, so that neither can stand for the other
        other.tower.backbone.encoder.layer[0].output.dense.weight.mul_(1.5)
    texts = [text for text in sentences if text][:7]
    texts = [*texts, texts[0]]  # two groups of four; the last text is no second positive of the first group
    objective = Tension(encoder, other, TensionSettings(negatives=3), compute=IN_PIECES)
    result = objective.step([Text(text) for text in texts])

    library = SentenceTransformer(str(tmp_path / "start"), device="cpu")
    loss = ContrastiveTensionLoss(library).eval()
    loss.model1[0].auto_model.encoder.layer[0].output.dense.weight.data.mul_(1.5)
    pairs = [(texts[i // 4 * 4], text) for i, text in enumerate(texts)]
    features = [library.preprocess([*column]) for column in zip(*pairs, strict=True)]
    value = loss(features, torch.tensor([1, 0, 0, 0] * 2))
    value.backward()
    assert result.loss == pytest.approx(value.item(), rel=1e-5)
    for name, model in (("tower", loss.model2), ("other", loss.model1)):
        theirs = {parameter: p.grad for parameter, p in model[0].auto_model.named_parameters() if p.grad is not None}
        ours = {parameter: p.grad for parameter, p in objective.module[name].backbone.named_parameters()}
        assert len(theirs) > 20
        for parameter, gradient in theirs.items():
            torch.testing.assert_close(ours[parameter], gradient, atol=1e-5, rtol=1e-4)


def test_an_equal_text_in_a_group_is_no_negative(tiny, sentences, tmp_path):
    encoder, other = start(tiny, tmp_path / "start")
    objective = Tension(encoder, other, TensionSettings(negatives=1), compute=IN_PIECES)
    loss = objective.step([Text(sentences[0]), Text(sentences[0])]).loss
    vector = torch.from_numpy(encoder.embed([sentences[0]], normalize=False))[0]
    assert loss == pytest.approx(2 * torch.nn.functional.softplus(-(vector @ vector)).item(), rel=1e-4)


@pytest.fixture
def recipe(tmp_path, tiny):
    """Return a recipe of one stage."""
    tiny("bert", readout="mean").save(tmp_path / "start")
    texts = [f"A man number {i} is playing the guitar." for i in range(32)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    stage = {"rows": "a.txt", "batch": 8, "steps": 5, "learning_rate": 1e-4, "optimizer": "rmsprop"}
    return {"start": "start", "stages": [{"name": "ct", "tension": {**stage, "negatives": 3}}]}


def test_a_stage_trains_two_encoders_and_keeps_the_one_that_reads_every_text(tmp_path, recipe, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    seen = {}

    def keep(self, *args, **options):
        seen.update(objective=self)
        made(self, *args, **options)

    made = Tension.__init__
    monkeypatch.setattr(Tension, "__init__", keep)
    result = train("r.yaml", "run")
    towers = seen["objective"].module
    ours, other = ({k: p for k, p in towers[name].named_parameters()} for name in ("tower", "other"))
    assert not any(torch.equal(ours[name], other[name]) for name in ours if "query.weight" in name)
    saved = dict(Encoder.load(result.encoder).tower.named_parameters())
    assert all(torch.equal(saved[name], ours[name]) for name in ours)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 10}, r"stages\.ct\.batch 10: holds no whole groups of texts.*a multiple of 4"),
        ({"lora": {"rank": 2}}, "lora: contrastive tension trains all weights of two encoders"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(tmp_path, recipe, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    changed = copy.deepcopy(recipe)
    changed["stages"][0]["tension"] |= change
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(changed))
    with pytest.raises(SettingError, match=message):
        train("r.yaml", "run")
