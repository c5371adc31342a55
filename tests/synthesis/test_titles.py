"""Titles: written by a stand-in, kept where they find their text, which is computed here in another way."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from tercet import Encoder, SettingError, Synthesizer
from tercet.storage.settings import checked
from tercet.synthesis.corpus import make_corpus, refilter
from tercet.synthesis.finders import NUM_OTHERS, NearVectors, SharedWords, finder_for
from tercet.synthesis.settings import SynthesisSettings

NOUNS = ["brake", "wheel", "saddle", "chain", "pump", "bell", "lamp", "tyre", "fork", "pedal"]


class Titles:
    """The title of a text is its third word and the last one; every fifth names another text's noun."""

    def generate(self, texts, *, relation, sampling, num_samples, seed):
        assert relation == "title"
        return [[self.title(text)] * num_samples for text in texts]

    def title(self, text):
        words = text.split()
        number = int(words[-1])
        return f"lost {NOUNS[(number + 1) % 10]}" if number % 5 == 0 else f"{words[2]} {words[-1]}"

    def score(self, premises, hypotheses):
        raise AssertionError("the discriminator has nothing to say about titles")

    def fingerprint(self):
        return "titles"


@pytest.fixture
def texts(tmp_path):
    lines = [f"all about {NOUNS[i % 10]} and how it is taken care of {i}" for i in range(30)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    return lines


def make(tmp_path, **more):
    given = {"sentences": tmp_path / "in.txt", "model": "x", "strategy": "title", "finder": None, **more}
    return make_corpus(checked(SynthesisSettings, given), tmp_path / "out", model=Titles())


def rows_in(folder):
    return [json.loads(line) for line in (folder / "triplets.jsonl").read_text().splitlines()]


def test_a_title_is_the_anchor_and_its_text_the_positive_where_it_finds_the_text(texts, tmp_path):
    audit = make(tmp_path)
    wanted = [text for i, text in enumerate(texts) if i % 5]
    assert rows_in(tmp_path / "out") == [
        {"anchor": Titles().title(text), "positive": text, "rank": 1} for text in wanted
    ]
    dropped = {rule: found["num"] for rule, found in audit["filters"]["dropped"].items()}
    assert dropped == {"short": 0, "same": 0, "lost": 6, "duplicate": 0}
    kept = [
        row for file in (tmp_path / "out" / "candidates").glob("*.parquet") for row in pq.read_table(file).to_pylist()
    ]
    assert len(kept) == 30


def test_another_filter_needs_no_second_writing(texts, tmp_path):
    make(tmp_path)
    assert refilter(tmp_path / "out", settings={"max_rank": 30}).num_triplets == 30
    assert refilter(tmp_path / "out", settings={"min_title_words": 3}).num_triplets == 0


def test_few_titles_that_are_accepted_are_told_of_with_what_to_change(texts, tmp_path):
    make(tmp_path)
    none = refilter(tmp_path / "out", settings={"min_title_words": 3})
    assert none.advice.endswith(f"tercet refilter {tmp_path / 'out'} --set min_title_words=1")
    assert "The rule 'short' dropped 30" in none.advice
    assert refilter(tmp_path / "out", settings={"min_title_words": 2}).advice == ""


def test_a_copy_of_the_text_is_no_title(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(Titles, "title", lambda self, text: text.upper() + "!")
    assert make(tmp_path)["filters"]["dropped"]["same"]["num"] == 30


def test_paragraphs_of_any_length_get_a_title_unless_a_limit_is_given(texts, tmp_path):
    long = " ".join(["all about brake and how", *["it"] * 100, "7"])
    (tmp_path / "in.txt").write_text(f"{long}\n{texts[1]}\n")
    assert make(tmp_path)["sentences"]["num_kept"] == 2
    (tmp_path / "out" / "audit.json").unlink()
    limited = checked(SynthesisSettings, {"sentences": "x", "model": "x", "strategy": "title", "max_premise_words": 9})
    assert limited.max_premise_words == 9
    assert checked(SynthesisSettings, {"sentences": "x", "model": "x"}).max_premise_words == 64


def test_places_by_vectors_are_those_of_the_cosines(tiny, tmp_path, sentences):
    encoder = tiny("t5")
    encoder.save(tmp_path / "finder")
    finder = NearVectors(str(tmp_path / "finder"), sentences)
    asked, wanted = sentences[:3], sentences[2:5]
    cosines = Encoder.load(tmp_path / "finder").similarity(asked, sentences)
    for row, text, rank in zip(cosines, wanted, finder.ranks(asked, wanted), strict=True):
        own = row[sentences.index(text)]
        assert rank == 1 + sum(other >= own for other, name in zip(row, sentences, strict=True) if name != text)
    assert finder.ranks(wanted, wanted) == [1] * 3


def test_words_that_few_texts_have_count_most():
    others = ["the red brake", "the red wheel", "the red bell", "the blue chain"]
    finder = SharedWords(others)
    assert finder.ranks(["the chain"], ["the blue chain"]) == [1]
    assert finder.ranks(["the red thing"], ["the red bell"]) == [3]  # two others are as near: that counts as lost
    assert finder.ranks(["no word of it"], ["the blue chain"]) == [4]


def test_the_others_are_200_texts_besides_a_texts_own():
    texts = [f"number {i} of many" for i in range(1000)]
    finder = finder_for(None, iter(texts))
    assert finder.ranks(["nothing in common"], ["some other text"]) == [NUM_OTHERS + 2]
    assert np.unique(finder.ranks(texts[:3], texts[:3])).tolist() == [1]


def test_a_synthesizer_writes_titles_by_their_own_template(synthesizer_folder, monkeypatch):
    synthesizer = Synthesizer.load(synthesizer_folder(), engine="transformers")
    seen = []

    def engine(rows, sampling, *, num_samples, seed):
        seen.extend(rows)
        return [[[5]] * num_samples for _ in rows]

    monkeypatch.setattr(synthesizer, "_engine", engine)
    assert len(synthesizer.generate(["A man plays."], relation="title", num_samples=2)[0]) == 2
    tokenizer = synthesizer._tokenizer
    pieces = [
        tokenizer.encode(text, add_special_tokens=False)
        for text in ("Write a short title for this text: ", "A man plays.")
    ]
    assert seen == [[*pieces[0], *pieces[1], tokenizer.eos_token_id]]
    with pytest.raises(SettingError, match="relation 'question': there is none of that name"):
        synthesizer.generate(["A man plays."], relation="question")
