"""`embed` and `search` in memory: lists of texts, whatever kind of list it is, and what is none."""

import numpy as np
import pytest

import tercet


def test_texts_in_memory_are_embedded_and_searched(tiny, tmp_path):
    encoder, texts = tiny("t5"), ["A man plays a guitar.", "Stocks dropped.", "A man plays a guitar."]
    vectors = tercet.embed(texts, model=encoder)
    np.testing.assert_array_equal(vectors, encoder.embed(texts))
    stats = tercet.embed(texts, model=encoder, out=tmp_path / "vectors.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), vectors)
    assert stats.num_texts == 3
    hits = tercet.search("Stocks dropped.", texts, model=encoder, k=1)
    assert (hits[0].row, hits[0].text) == (2, "Stocks dropped.")
    assert not (tmp_path / ".tercet-cache").exists()


def test_a_number_among_texts_is_named_by_its_position(tiny, tmp_path):
    for out in (None, tmp_path / "vectors.npy"):
        with pytest.raises(tercet.TextError, match="text 1: is of type int"):
            tercet.embed(["one", 2], model=tiny("t5"), out=out)


def test_a_file_gives_the_vectors_of_its_texts(tiny, tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    np.testing.assert_array_equal(
        tercet.embed(tmp_path / "in.txt", model=tiny("t5")), tercet.embed(["one", "two"], model=tiny("t5"))
    )


class Frame:
    """Has columns, as a table of pandas or polars, and gives their names when it is iterated."""

    columns = ("text", "label")

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(
    "texts", [{"a": 1}, {"a", "b"}, b"bytes", None, 3, Frame()], ids=lambda value: type(value).__name__
)
def test_what_is_no_list_of_texts_is_refused_and_not_taken_for_one(tiny, tmp_path, texts):
    calls = [
        lambda: tercet.embed(texts, model=tiny("t5")),
        lambda: tercet.embed(texts, model=tiny("t5"), out=tmp_path / "out.npy"),
        lambda: tercet.search("a", texts, model=tiny("t5")),
        lambda: tercet.synthesize(texts, tmp_path / "out"),
        lambda: tercet.adapt(texts, tmp_path / "out"),
        lambda: tiny("t5").embed(texts),
    ]
    for call in calls:
        with pytest.raises(
            tercet.InputError, match=f"{type(texts).__name__}: was given where a list of texts is wanted"
        ):
            call()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "texts", [("a", "b"), np.array(["a", "b"]), (text for text in "ab")], ids=["tuple", "array", "iterator"]
)
def test_anything_that_gives_texts_in_an_order_is_a_list_of_them(tiny, tmp_path, texts):
    encoder = tiny("t5")
    tercet.embed(texts, model=encoder, out=tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), encoder.embed(["a", "b"]))


def test_none_and_numbers_never_become_sentences(tmp_path):
    with pytest.raises(tercet.TextError, match="text 1: is of type NoneType"):
        tercet.adapt(["A sentence.", None], tmp_path / "out")


def test_a_string_is_a_file_and_a_sentence_given_as_one_is_told_so(tiny):
    with pytest.raises(tercet.InputError, match=r"for texts give a list: \[text\]"):
        tercet.embed("A man plays a guitar.", model=tiny("t5"))


def test_a_query_that_is_no_text_is_not_called_a_text_of_the_list(tiny):
    with pytest.raises(tercet.InputError, match="query: is of type NoneType"):
        tercet.search(None, ["a"], model=tiny("t5"))


@pytest.mark.parametrize("model", [None, 3])
def test_what_is_no_model_is_refused(model):
    for call in (lambda: tercet.embed(["a"], model=model), lambda: tercet.evaluate(model, tasks="speed")):
        with pytest.raises(tercet.SettingError, match=f"model: is of type {type(model).__name__}"):
            call()


def test_an_encoder_says_what_it_is(tiny):
    assert repr(tiny("t5")) == "Encoder('random:t5-tiny', 2.7M parameters, 256 numbers a vector, readout enc-mean)"
