"""Views of a text: which parts ask, what they should find, and that they depend on nothing else."""

import re

import pytest

from tercet import SettingError
from tercet.synthesis.views import views_of

TEXTS = [
    "The quick brown fox jumps over the lazy dog near the old river bank.",
    "A ledger holds accounts. Each account has a balance and a list of splits.",
    "The dog sleeps near the river while the fox counts the balance of the account.",
]


def test_a_span_and_the_rest_are_the_words_of_the_text_in_their_order():
    pairs = [*views_of(TEXTS, "span", num_views=5, seed=1)]
    assert len(pairs) > len(TEXTS)
    for span, rest in pairs:
        words, left = span.split(), rest.split()
        assert 3 <= len(words) <= 9 and len(left) >= 4
        places = range(len(left) + 1)
        assert any(" ".join([*left[:i], *words, *left[i:]]) in TEXTS for i in places)


def test_telling_words_are_the_rarest_and_some_are_missing_in_their_text():
    corpus = [f"the common words of every text {name} stand here" for name in ("zebra", "walrus", "ibex")]
    pairs = [*views_of(corpus, "words", num_views=20, seed=0)]
    assert {name for name in ("zebra", "walrus", "ibex") if any(name in asks for asks, _ in pairs)} == {
        "zebra",
        "walrus",
        "ibex",
    }
    for asks, finds in pairs:
        (text,) = [text for text in corpus if set(asks.split()) <= set(text.split())]
        assert 2 <= len(asks.split()) <= 6
        assert [word for word in text.split() if word in asks.split()] == asks.split()
        assert set(text.split()) - set(finds.split()) <= set(asks.split())
    assert any(set(asks.split()) - set(finds.split()) for asks, finds in pairs)


def test_the_first_sentence_asks_for_the_others():
    pairs = [*views_of([*TEXTS, 'He said "no." Then he left the room for good.', "Dr. No"], "lead")]
    assert pairs == [("A ledger holds accounts.", "Each account has a balance and a list of splits.")]


def test_every_sentence_asks_for_the_others():
    text = "Open the valve first. Then press the red button. Wait until the lamp is green."
    parts = ["Open the valve first.", "Then press the red button.", "Wait until the lamp is green."]
    wanted = {(part, " ".join(other for other in parts if other != part)) for part in parts}
    assert {*views_of([text], "sentence", num_views=20)} == wanted
    assert [*views_of(["One sentence has no others to ask for."], "sentence", num_views=3)] == []


def test_what_is_drawn_for_a_text_does_not_depend_on_its_neighbours():
    alone = [*views_of([TEXTS[2]], "span", num_views=3, seed=7)]
    assert alone == [pair for pair in views_of(TEXTS, "span", num_views=3, seed=7) if pair in alone]
    assert alone != [*views_of([TEXTS[2]], "span", num_views=3, seed=8)]


def test_short_texts_have_no_views_and_unknown_views_are_refused():
    short = ["too short", "one two three four five six"]
    assert [*views_of(short, "span")] == [*views_of(short, "lead")] == []
    with pytest.raises(
        SettingError, match=re.escape("view 'spam': there is none of that name. Known: span, words, lead, sentence")
    ):
        next(views_of(TEXTS, "spam"))
