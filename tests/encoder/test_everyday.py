"""What programs do with an encoder besides embedding: copy it, send it away, give it all sorts of texts."""

import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from sentence_transformers import SentenceTransformer

import tercet
from tercet import SettingError, TextError, TextTypeError

TEXTS = ["A man is playing a guitar.", "Stocks dropped."]


def pickled(encoder):
    return pickle.loads(pickle.dumps(encoder))


@pytest.mark.parametrize("precision", ["exact", "int8"])
@pytest.mark.parametrize("again", [copy.deepcopy, pickled], ids=["copy", "pickle"])
def test_an_encoder_can_be_copied_before_and_after_it_has_embedded(tiny, tmp_path, again, precision):
    tiny("t5").save(tmp_path)
    for encoder in (tiny("bert"), tercet.Encoder.load(tmp_path, device="cpu")):
        before = again(encoder)
        vectors = encoder.embed(TEXTS, precision=precision)
        for twin in (before, again(encoder)):
            np.testing.assert_array_equal(twin.embed(TEXTS, precision=precision), vectors)


def test_a_copy_shares_no_weights(tiny):
    encoder = tiny("t5")
    vectors = encoder.embed(TEXTS)
    twin = copy.deepcopy(encoder)
    with torch.no_grad():
        for weight in twin.tower.parameters():
            weight.mul_(0.5)
    np.testing.assert_array_equal(encoder.embed(TEXTS), vectors)
    assert not np.allclose(twin.embed(TEXTS), vectors)


@pytest.mark.parametrize("error", [TextError(3, "is too long. Cut it."), TextTypeError(0, "is of type int. No.")])
def test_an_error_arrives_from_another_process_as_it_was(error):
    arrived = pickle.loads(pickle.dumps(error))
    assert (type(arrived), arrived.position, str(arrived)) == (type(error), error.position, str(error))


def test_texts_come_as_lists_columns_generators_or_one_string(tiny):
    import pandas as pd

    encoder = tiny("t5")
    vectors = encoder.embed(TEXTS)
    given = [tuple(TEXTS), np.array(TEXTS), pd.Series(TEXTS), pa.array(TEXTS), (text for text in TEXTS), iter(TEXTS)]
    for texts in given:
        np.testing.assert_array_equal(encoder.embed(texts), vectors)
    np.testing.assert_array_equal(encoder.embed(TEXTS[0]), encoder.encode(TEXTS[0]))
    assert encoder.embed(TEXTS[0]).shape == (encoder.dim,)
    assert encoder.similarity(TEXTS[0], TEXTS).shape == (1, 2)


def test_a_table_or_a_mapping_is_never_taken_for_its_names(tiny):
    import pandas as pd

    frame = pd.DataFrame({"text": TEXTS, "label": [0, 1]})
    for table in (frame, dict(frame), pa.Table.from_pandas(frame)):
        for embed in (tiny("t5").embed, tiny("t5").encode):
            with pytest.raises(tercet.InputError, match="was given where a list of texts is wanted"):
                embed(table)


@pytest.mark.parametrize("bad", [None, 3, float("nan"), b"bytes", ["a"]], ids=lambda bad: type(bad).__name__)
def test_what_is_no_text_is_a_type_error_that_names_its_place(tiny, bad):
    for embed in (tiny("t5").embed, tiny("t5").encode, lambda texts: tercet.embed(texts, model=tiny("t5"))):
        with pytest.raises(TypeError, match=f"text 1: is of type {type(bad).__name__}") as caught:
            embed(["a", bad])
        assert isinstance(caught.value, tercet.TextError)


def test_an_encoder_moves_to_a_device_and_stays_where_it_is(tiny, tmp_path):
    tiny("t5").save(tmp_path)
    encoder = tercet.Encoder.load(tmp_path, device="cpu")
    vectors = encoder.embed(TEXTS)
    assert encoder.to("cpu") is encoder
    np.testing.assert_array_equal(encoder.embed(TEXTS), vectors)
    assert encoder.to("meta").device == torch.device("meta")


PROMPTS = {"query": "query: ", "passage": "passage: ", "clustering": "group: "}


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {"readout": "mean"}),
        ("bert", {"readout": "mean", "prompt": "query: [X]"}),
        ("t5", {"readout": "encdec-first", "prompt": "gense"}),
    ],
)
@pytest.mark.parametrize("prompts", [PROMPTS, {}], ids=["prompts", "none"])
def test_named_prompts_give_the_vectors_that_sentence_transformers_gives(tiny, tmp_path, family, settings, prompts):
    encoder = tiny(family, **settings, max_tokens=60)
    encoder.prompts = prompts
    encoder.save(tmp_path)
    encoder = tercet.Encoder.load(tmp_path, device="cpu")
    theirs = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)
    calls = [
        ("encode", {}),
        ("encode_query", {}),
        ("encode_document", {}),
        ("encode", {"prompt_name": "document"}),
        ("encode", {"prompt": "other: "}),
        ("encode", {"prompt": ""}),
        ("encode_query", {"prompt": "other: "}),
        *([("encode_document", {"prompt_name": "clustering"})] if prompts else []),
    ]
    for name, options in calls:
        expected = getattr(theirs, name)(TEXTS, **options)
        np.testing.assert_allclose(getattr(encoder, name)(TEXTS, **options), expected, atol=2e-5, err_msg=name)


def test_a_prompt_without_that_name_is_an_error_that_lists_the_others(tiny):
    encoder = tiny("bert")
    encoder.prompts = PROMPTS
    with pytest.raises(SettingError, match=r"prompt_name 'title': .* Known: query, document, passage, clustering"):
        encoder.encode(TEXTS, prompt_name="title")
