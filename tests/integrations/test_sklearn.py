"""An encoder as a step of scikit-learn's pipelines."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import tercet
from tercet.integrations.sklearn import TercetVectorizer

TEXTS = ["A man plays a guitar.", "Somebody plays an instrument.", "Stocks dropped.", "The market fell on Monday."] * 3
LABELS = [0, 0, 1, 1] * 3


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny("t5").save(folder)
    return folder


def test_it_gives_the_vectors_of_its_encoder(folder):
    encoder = tercet.Encoder.load(folder, device="cpu")
    for texts in (TEXTS, np.array(TEXTS, dtype=object), pd.Series(TEXTS)):
        vectors = TercetVectorizer(str(folder), dims=8, device="cpu").fit_transform(texts)
        np.testing.assert_array_equal(vectors, encoder.embed(TEXTS, dims=8))


def test_its_parameters_can_be_read_set_and_cloned(tiny):
    encoder = tiny("t5")
    vectorizer = TercetVectorizer(encoder, precision="fast").set_params(dims=4)
    twin = clone(vectorizer)
    assert twin.get_params() == vectorizer.get_params()
    assert twin.model is encoder
    assert repr(twin).startswith("TercetVectorizer(")


def test_it_works_in_a_cross_validation_with_an_encoder_that_has_been_used(tiny):
    encoder = tiny("t5")
    encoder.embed(TEXTS)
    pipeline = make_pipeline(TercetVectorizer(encoder), LogisticRegression())
    scores = cross_val_score(pipeline, TEXTS, LABELS, cv=3, error_score="raise")
    by_hand = cross_val_score(LogisticRegression(), encoder.embed(TEXTS), LABELS, cv=3)
    np.testing.assert_array_equal(scores, by_hand)


def test_tables_have_names_for_its_numbers(tiny):
    frame = pd.DataFrame({"text": TEXTS}, index=[f"row{i}" for i in range(len(TEXTS))])
    columns = make_column_transformer((TercetVectorizer(tiny("t5"), dims=3), "text")).set_output(transform="pandas")
    out = columns.fit_transform(frame)
    assert list(out.columns) == [f"tercetvectorizer__tercet{i}" for i in range(3)]
    assert list(out.index) == list(frame.index)


def test_it_must_be_fitted_first(tiny):
    with pytest.raises(NotFittedError):
        TercetVectorizer(tiny("t5")).transform(TEXTS)
