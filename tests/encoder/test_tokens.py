"""Token ids: prompts, special tokens, and truncation of nothing but the text."""

import pytest

from tercet import SettingError
from tercet.encoder.model.prompts import EMBEDDING_PROMPTS, Prompt
from tercet.encoder.model.tokens import Tokens

LONG = "two dogs run through deep snow " * 20
FAMILIES = ["t5", "byt5", "bert", "roberta"]


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_prompt_ids_are_the_tokenizers_own(tokenizers, sentences, family):
    tokenizer = tokenizers[family]
    ids, truncated = Tokens(tokenizer, max_tokens=256)(sentences)
    assert ids == [tokenizer.encode(text) for text in sentences]
    assert not any(truncated)


@pytest.mark.parametrize("family", FAMILIES)
def test_truncation_without_a_prompt_is_the_tokenizers_own(tokenizers, family):
    tokenizer = tokenizers[family]
    ids, truncated = Tokens(tokenizer, max_tokens=12)([LONG, "dogs"])
    assert ids[0] == tokenizer.encode(LONG, truncation=True, max_length=12)
    assert truncated == [True, len(tokenizer.encode("dogs")) > 12]


@pytest.mark.parametrize("family", ["t5", "byt5"])
def test_the_embedding_prompt_gives_the_ids_of_the_whole_string(tokenizers, family):
    tokenizer = tokenizers[family]
    tokens = Tokens(tokenizer, prompt=Prompt.parse("gense"), max_tokens=256)
    whole = "A man plays. Question: what can we draw from the above sentence?"
    assert tokens(["A man plays."])[0] == [tokenizer.encode(whole)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_gives_the_ids_of_the_whole_string(tokenizers, family):
    tokenizer = tokenizers[family]
    tokens = Tokens(tokenizer, prompt=Prompt.parse("query: [X]"), max_tokens=256)
    assert tokens(["A man plays."])[0] == [tokenizer.encode("query: A man plays.")]


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_text_is_truncated_never_the_prompt(tokenizers, family):
    tokenizer = tokenizers[family]
    suffix = " Question: what can we draw from the above sentence?"
    suffix_ids = tokenizer.encode(suffix, add_special_tokens=False)
    end = tokenizer.encode("", add_special_tokens=True)[-1]
    limit = len(suffix_ids) + 14
    ids, truncated = Tokens(tokenizer, prompt=Prompt.parse("gense"), max_tokens=limit)([LONG])
    assert truncated == [True]
    assert len(ids[0]) == limit
    assert ids[0][-len(suffix_ids) - 1 :] == [*suffix_ids, end]
    bare = tokenizer.encode(LONG, add_special_tokens=False)
    text_ids = [i for i in ids[0][: -len(suffix_ids) - 1] if i not in tokenizer.all_special_ids]
    assert text_ids == bare[: len(text_ids)]


def test_a_text_that_just_fits_is_not_truncated(t5_tokenizer):
    length = len(t5_tokenizer.encode("Two dogs run."))
    assert Tokens(t5_tokenizer, max_tokens=length)(["Two dogs run."])[1] == [False]
    assert Tokens(t5_tokenizer, max_tokens=length - 1)(["Two dogs run."])[1] == [True]


def test_lower_casing_comes_first(bert_tokenizer, t5_tokenizer):
    tokens = Tokens(t5_tokenizer, max_tokens=64, lowercase=True)
    assert tokens(["Stocks DROPPED."]) == tokens(["stocks dropped."])


def test_lower_casing_covers_the_prompt(t5_tokenizer):
    lower = Tokens(t5_tokenizer, prompt=Prompt.parse("QUERY: [X] PLEASE"), max_tokens=64, lowercase=True)
    plain = Tokens(t5_tokenizer, prompt=Prompt.parse("query: [X] please"), max_tokens=64)
    assert lower(["Stocks"]) == plain(["stocks"])


def test_a_prompt_that_leaves_no_room_is_refused(t5_tokenizer):
    with pytest.raises(SettingError, match=r"max_tokens 10.*no room"):
        Tokens(t5_tokenizer, prompt=Prompt.parse("gense"), max_tokens=10)


def test_the_gense_prompt_is_the_papers():
    assert EMBEDDING_PROMPTS["gense"] == "[X] Question: what can we draw from the above sentence?"


@pytest.mark.parametrize("template", ["no slot", "[X] and [X]", ""])
def test_a_template_needs_its_slot_exactly_once(template):
    with pytest.raises(SettingError, match=r"slot \[X\]"):
        Prompt.parse(template)
