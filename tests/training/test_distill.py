"""Distillation against sums written out here; targets and remembered vectors against the teachers themselves."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tercet import Encoder, InputError, SettingError
from tercet.data.rows.kinds import Text, Triplet
from tercet.storage.hashing import text_key
from tercet.training.loop.processes import Processes
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.distill import (
    Distill,
    DistillSettings,
    cosine_loss,
    first_of_equal,
    pair_loss,
    pairs_of_rows,
    similarity_loss,
)
from tercet.training.stages.distill import fit_projection
from tercet.training.stages.stage import Context
from tercet.training.stages.teachers import Targets, TeacherSettings
from tercet.vectors import remembered
from tercet.vectors.remembered import RememberedVectors

TEXTS = [f"{who} {what} {where}" for who in ("A man", "Dogs", "Stocks") for what in ("run", "fell") for where in "abcd"]


def keys_of(texts):
    return torch.tensor([text_key(text) for text in texts])


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def written_out(vectors, targets, keys, temperature):
    """The divergence row by row and text by text."""

    def cosine(x, y):
        return float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))

    total = 0.0
    for i in range(len(keys)):
        others = [j for j in range(len(keys)) if keys[j] != keys[i]]
        wanted = [math.exp(cosine(targets[i], targets[j]) / temperature) for j in others]
        found = [math.exp(cosine(vectors[i], vectors[j]) / temperature) for j in others]
        for p, q in zip(wanted, found, strict=True):
            total += p / sum(wanted) * math.log((p / sum(wanted)) / (q / sum(found)))
    return total / len(keys)


def test_the_similarity_loss_is_the_one_written_out():
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    targets = torch.randn(6, 9, generator=generator, dtype=torch.float64)
    keys = torch.tensor([1, 2, 3, 2, 5, 6])
    loss = similarity_loss(vectors, targets, keys=keys, temperature=0.3)
    assert loss.item() == pytest.approx(written_out(vectors, targets, keys, 0.3))
    assert similarity_loss(targets * 3, targets, keys=keys, temperature=0.3).item() == pytest.approx(0, abs=1e-12)


def test_the_cosine_loss_is_the_mean_distance():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    targets = torch.tensor([[5.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert cosine_loss(vectors, targets).item() == pytest.approx((0 + 1 + 2) / 3)


def test_a_text_without_others_has_no_gradient():
    vectors = torch.randn(1, 4, requires_grad=True)
    similarity_loss(vectors, torch.randn(1, 4), keys=torch.tensor([1]), temperature=0.05).backward()
    assert vectors.grad.abs().max() == 0


def test_the_pair_loss_is_the_squared_difference_of_cosines_within_rows():
    rows = [Triplet("a", "b", ("c",)), Triplet("b", "d"), Text("e")]
    pairs = pairs_of_rows(rows, [0, 1, 2, 1, 3, 4])
    assert pairs.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3]]
    generator = torch.Generator().manual_seed(1)
    vectors, targets = torch.randn(5, 3, generator=generator), torch.randn(5, 7, generator=generator)
    ours, theirs = unit(vectors.numpy()), unit(targets.numpy())
    wanted = sum((ours[i] @ ours[j] - theirs[i] @ theirs[j]) ** 2 for i, j in pairs.tolist()) / 4
    assert pair_loss(vectors, targets, pairs).item() == pytest.approx(wanted, rel=1e-5)
    assert pair_loss(vectors, targets, pairs_of_rows(rows[2:], [0])).item() == 0


def test_of_equal_keys_the_first_one_is_taken():
    once, places = first_of_equal(torch.tensor([7, -3, 7, 5, -3]))
    assert once.tolist() == [0, 1, 3]
    assert places.tolist() == [0, 1, 0, 2, 1]


@pytest.fixture
def context(tmp_path):
    return Context("a", tmp_path / "stage", 0, {}, Processes(), score=None, measure=None)


@pytest.fixture
def teachers(tiny, tmp_path):
    """Save two teachers and return their settings."""
    tiny("t5").save(tmp_path / "wide")
    tiny("bert", readout="mean").save(tmp_path / "other")
    wide = TeacherSettings(model=str(tmp_path / "wide"), weight=3.0)
    return [wide, TeacherSettings(model=str(tmp_path / "other"), encoder={"prompt": "query: [X]"})]


@pytest.fixture
def targets(teachers, context, tmp_path):
    def make(*, width, teachers=teachers, texts=TEXTS):
        made = Targets(teachers, width=width, context=context, cache=tmp_path / "cache", precision="exact")
        made.learn(lambda: texts)
        return made

    return make


def centred(teacher):
    vectors = Encoder.load(teacher.model, device="cpu", **teacher.encoder.given()).embed(TEXTS)
    return unit(vectors - vectors.mean(0))


def test_the_cosine_of_targets_is_the_weighted_mean_of_the_teachers(targets, teachers):
    wide, other = (centred(teacher) for teacher in teachers)
    found = targets(width=wide.shape[1] + other.shape[1])(keys_of(TEXTS)).numpy()
    np.testing.assert_allclose(found @ found.T, (3 * wide @ wide.T + other @ other.T) / 4, atol=2e-3)


def test_narrower_targets_keep_the_directions_in_which_texts_differ_most(targets, teachers):
    both = np.concatenate([3**0.5 * centred(teachers[0]), centred(teachers[1])], axis=1)
    u, s, _ = np.linalg.svd(both, full_matrices=False)
    wanted = unit(u[:, :10] * s[:10])
    found = targets(width=10)(keys_of(TEXTS)).numpy()
    assert found.shape == (len(TEXTS), 10)
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=5e-3)


def test_a_wider_student_has_zeros_behind_the_teachers_numbers(targets, teachers):
    wanted = centred(teachers[0])
    found = targets(width=300, teachers=teachers[:1])(keys_of(TEXTS)).numpy()
    np.testing.assert_allclose(found[:, : wanted.shape[1]], wanted, atol=2e-3)
    assert not found[:, wanted.shape[1] :].any()


def test_whitened_targets_are_those_that_numpy_whitens(targets, teachers):
    vectors = centred(teachers[0]).astype(np.float64)
    variance, directions = np.linalg.eigh(np.cov(vectors.T))
    floored = np.maximum(variance, variance.max() / 10_000)
    wanted = unit(vectors @ (directions / floored**0.3) @ directions.T)
    whitened = teachers[0].model_copy(update={"whiten": 0.3})
    found = targets(width=vectors.shape[1], teachers=[whitened])(keys_of(TEXTS)).numpy()
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=2e-2)


def test_a_direction_without_variance_is_not_blown_up(targets, teachers):
    few = TEXTS[:6]  # they differ in five directions at most
    whitened = teachers[0].model_copy(update={"whiten": 0.5})
    found = targets(width=256, teachers=[whitened], texts=few)(keys_of(few)).numpy()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-4)


def test_a_step_has_the_gradients_of_the_losses(tiny):
    student = tiny("t5", projection=16)
    table = torch.randn(100, 16, generator=torch.Generator().manual_seed(3))
    settings = DistillSettings(cosine_weight=2.0, similarity_weight=0.5, temperature=0.2, pair_weight=3.0)
    rows = [Triplet("Dogs run.", "Stocks fell.", ("Dogs run.",)), Text("A man")]
    objective = Distill(student, lambda keys: table[keys % 100], settings, compute=ComputeSettings())
    result = objective.step(rows)
    ours = {name: p.grad.clone() for name, p in student.tower.named_parameters() if p.grad is not None}
    student.tower.zero_grad()

    texts = ["Dogs run.", "Stocks fell.", "A man"]
    inputs = student.tokens.tokenizer(texts, padding=True, return_tensors="pt")
    vectors = student.tower.raw(inputs["input_ids"], inputs["attention_mask"])
    keys = keys_of(texts)
    loss = 2.0 * cosine_loss(vectors, table[keys % 100])
    loss = loss + 0.5 * similarity_loss(vectors, table[keys % 100], keys=keys, temperature=0.2)
    loss = loss + 3.0 * pair_loss(vectors, table[keys % 100], torch.tensor([[0, 1]]))
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in student.tower.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(ours[name], parameter.grad, atol=1e-5, rtol=1e-4)


def test_a_fitted_projection_is_the_nearest_to_the_targets(tiny, targets):
    wanted, student = targets(width=256), tiny("t5", projection=256)
    keys = keys_of(TEXTS)

    def likeness():
        return float((torch.from_numpy(student.embed(TEXTS)) * wanted(keys)).sum(1).mean())

    before = likeness()
    fit_projection(student, wanted, TEXTS, precision="exact")
    assert before < 0.5 and likeness() > 0.95


def test_a_student_without_a_projection_has_nothing_to_fit(tiny, targets):
    with pytest.raises(SettingError, match="fit_projection"):
        fit_projection(tiny("t5"), targets(width=256), TEXTS, precision="exact")


class TestRememberedVectors:
    def test_they_are_the_encoders(self, tiny, tmp_path, monkeypatch):
        monkeypatch.setattr(remembered, "_SHARD_TEXTS", 5)
        encoder = tiny("t5")
        store = RememberedVectors(tmp_path, encoder, precision="exact")
        keys = store.add(lambda: [*TEXTS, *TEXTS[:3]], label="")
        assert len(keys) == len(TEXTS)
        np.testing.assert_allclose(store(keys_of(TEXTS).numpy()), encoder.embed(TEXTS), atol=1e-3)
        assert len(list(tmp_path.rglob("*.npy"))) == math.ceil(len(TEXTS) / 5)

    def test_no_text_is_embedded_twice_in_any_run(self, tiny, tmp_path, monkeypatch):
        encoder, embedded = tiny("t5"), []
        RememberedVectors(tmp_path, encoder, precision="exact").add(lambda: TEXTS[:7], label="")
        tokenize = encoder._tokenize
        monkeypatch.setattr(encoder, "_tokenize", lambda texts: embedded.extend(texts) or tokenize(texts))
        again = RememberedVectors(tmp_path, encoder, precision="exact")
        again.add(lambda: TEXTS, label="")
        assert embedded == TEXTS[7:]
        np.testing.assert_allclose(again(keys_of(TEXTS).numpy()), tiny("t5").embed(TEXTS), atol=1e-3)

    def test_two_runs_that_fill_a_folder_at_once_do_not_lose_each_others_vectors(self, tiny, tmp_path, monkeypatch):
        monkeypatch.setattr(remembered, "_SHARD_TEXTS", 5)
        encoder, other = tiny("t5"), tiny("t5")
        embed_each, theirs = encoder.embed_each, [*TEXTS[:3], *TEXTS[12:16]]  # begins with our first text

        def meanwhile(*args, **more):
            yield from embed_each(*args, **more)
            RememberedVectors(tmp_path / "empty", other, precision="exact").add(lambda: theirs, label="")
            for shard in (tmp_path / "empty").rglob("*.npy"):  # which the other run made of what it saw at its start
                shard.replace(tmp_path / "shared" / shard.relative_to(tmp_path / "empty"))

        monkeypatch.setattr(encoder, "embed_each", meanwhile)
        store = RememberedVectors(tmp_path / "shared", encoder, precision="exact")
        store.add(lambda: TEXTS[:12], label="")
        texts = TEXTS[:16]
        np.testing.assert_allclose(store(keys_of(texts).numpy()), other.embed(texts), atol=1e-3)

    def test_few_files_are_open_however_many_shards_there_are(self, tiny, tmp_path, monkeypatch):
        monkeypatch.setattr(remembered, "_SHARD_TEXTS", 1)
        monkeypatch.setattr(remembered, "_MAX_OPEN", 2)
        store = RememberedVectors(tmp_path, tiny("t5"), precision="exact")
        keys = store.add(lambda: TEXTS, label="")
        vectors = store(keys)
        np.testing.assert_allclose(vectors, tiny("t5").embed(TEXTS), atol=1e-3)
        open_files = [file.resolve() for file in Path("/proc/self/fd").iterdir() if file.exists()]
        assert len([file for file in open_files if tmp_path in file.parents]) == 2 < len(TEXTS)

    def test_a_text_without_a_vector_does_not_get_that_of_another(self, tiny, tmp_path):
        store = RememberedVectors(tmp_path, tiny("t5"), precision="exact")
        store.add(lambda: TEXTS[:7], label="")
        for wanted, num in ((TEXTS[:9], 2), (TEXTS[7:], len(TEXTS) - 7)):
            with pytest.raises(InputError, match=f"{num} texts have no vector"):
                store(keys_of(wanted).numpy())

    def test_a_shard_that_cannot_be_opened_is_not_taken_for_a_broken_one(self, tiny, tmp_path, monkeypatch):
        store = RememberedVectors(tmp_path, tiny("t5"), precision="exact")
        store.add(lambda: TEXTS, label="")

        def refused(*args, **more):
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(np, "load", refused)
        with pytest.raises(InputError, match="Too many open files"):
            store.add(lambda: TEXTS, label="")
        assert [*tmp_path.rglob("*.npy")]

    def test_a_broken_shard_is_made_again(self, tiny, tmp_path, caplog, monkeypatch):
        monkeypatch.setattr(remembered, "_SHARD_TEXTS", 5)
        encoder = tiny("t5")
        RememberedVectors(tmp_path, encoder, precision="exact").add(lambda: TEXTS, label="")
        file = sorted(tmp_path.rglob("*.npy"))[1]
        file.write_bytes(file.read_bytes()[:300])
        store = RememberedVectors(tmp_path, encoder, precision="exact")
        with caplog.at_level(logging.WARNING, logger="tercet"):
            store.add(lambda: TEXTS, label="")
        assert file.name in caplog.text
        np.testing.assert_allclose(store(keys_of(TEXTS).numpy()), encoder.embed(TEXTS), atol=1e-3)
