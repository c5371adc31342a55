"""An Encoder under the real mteb, on a task that is made here."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from tercet import SettingError

pytest.importorskip("mteb")

import mteb
from datasets import Dataset, DatasetDict
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.cache import ResultCache
from mteb.models import EncoderProtocol

from tercet.evaluation.mteb import for_mteb


class TinySTS(AbsTaskSTS):
    metadata = TaskMetadata(
        name="TinySTS",
        dataset={"path": "tercet/tiny", "revision": "1"},
        description="Pairs that are made in memory.",
        reference=None,
        type="STS",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="cosine_spearman",
    )

    def load_data(self, **_kwargs):
        self.dataset = DatasetDict({"test": Dataset.from_list(self.rows)})
        self.data_loaded = True


@pytest.fixture
def task(sentences):
    task = TinySTS()
    task.rows = [
        {"sentence1": text, "sentence2": sentences[(i + 1) % len(sentences)], "score": float(i % 6)}
        for i, text in enumerate(sentences)
    ]
    return task


def score(model, task, folder):
    results = mteb.evaluate(model, task, cache=ResultCache(folder), co2_tracker=False)
    return results.task_results[0].scores["test"][0]["cosine_spearman"]


def expected(vectors_of, task):
    first, second = (vectors_of([row[name] for row in task.rows]) for name in ("sentence1", "sentence2"))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    return pytest.approx(spearmanr(cosines, [row["score"] for row in task.rows]).statistic, abs=1e-4)


def test_mteb_gives_the_spearman_of_our_cosines(tiny, task, tmp_path):
    encoder = tiny("t5", readout="encdec-first", prompt="gense")
    model = for_mteb(encoder)
    assert isinstance(model, EncoderProtocol)
    assert score(model, task, tmp_path) == expected(encoder.embed, task)


def test_kept_results_belong_to_one_encoder_and_its_options(tiny, task, tmp_path):
    encoder, other = tiny("t5"), tiny("t5", readout="enc-first")
    models = [for_mteb(encoder), for_mteb(encoder, dims=encoder.dim // 2), for_mteb(other)]
    assert len({model.mteb_model_meta.revision for model in models}) == 3
    assert models[0].mteb_model_meta.revision == for_mteb(encoder, progress=True).mteb_model_meta.revision
    assert models[1].mteb_model_meta.embed_dim == encoder.dim // 2
    assert [score(model, task, tmp_path) for model in models] == [
        expected(encoder.embed, task),
        expected(lambda texts: encoder.embed(texts, dims=encoder.dim // 2), task),
        expected(other.embed, task),
    ]


def test_a_name_needs_an_owner(tiny):
    with pytest.raises(SettingError, match="owner/mine"):
        for_mteb(tiny("t5"), name="mine")


def test_mteb_does_not_set_the_precision(tiny, task, tmp_path):
    with pytest.raises(SettingError, match="Give it to for_mteb"):
        mteb.evaluate(
            for_mteb(tiny("t5")),
            task,
            cache=ResultCache(tmp_path),
            encode_kwargs={"precision": "int8"},
            co2_tracker=False,
        )
