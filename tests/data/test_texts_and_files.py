"""A sentence is a `Text`, and a file means the same to training, evaluation, `embed` and `search`."""

import json
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch

from tercet import InputError, RowError, SettingError
from tercet.adaptation.judges import own_tasks
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.given import given_files
from tercet.data.rows.kinds import (
    ClassText,
    NliPair,
    ParallelPair,
    ParaphrasePair,
    RankedPair,
    ScoredPair,
    Text,
    Triplet,
    as_triplet,
    texts_of,
)
from tercet.data.rows.share import is_in_share
from tercet.data.rows.texts import TextFile
from tercet.evaluation.evaluate import evaluate
from tercet.evaluation.tasks.own import kind_of
from tercet.evaluation.tasks.table import choose_tasks
from tercet.evaluation.tasks.triplets import score_triplets
from tercet.storage.hashing import text_place
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.contrast import Contrast, ContrastSettings
from tercet.training.objectives.generate import pairs_of

WORDS = "a man plays guitar dog runs fast rain falls on the town stocks rose again today".split()
RNG = np.random.default_rng(5)


def sentence():
    return " ".join(RNG.choice(WORDS, 6))


class Hashed:
    """An encoder whose vectors are sums of the vectors of words."""

    def encode(self, sentences):
        rows = [[np.random.default_rng(crc32(word.encode())).normal(size=16) for word in s.split()] for s in sentences]
        return np.stack([np.sum(row, axis=0) if row else np.ones(16) for row in rows])


def write(path, columns, rows):
    """Write a table, or plain lines where there are no columns."""
    lines = ["\t".join(columns), *("\t".join(map(str, row)) for row in rows)] if columns else map(str, rows)
    path.write_text("\n".join(lines) + "\n")
    return path


# A sentence is a Text.


def test_a_file_of_texts_gives_texts_and_other_files_give_their_rows(tmp_path):
    lines = write(tmp_path / "lines.txt", None, ["one", "two"])
    assert [*open_rows(lines, kind="texts")] == [Text("one"), Text("two")]
    pairs = write(tmp_path / "pairs.tsv", ["anchor", "positive"], [("one", "two")])
    assert [*open_rows(pairs, kind="texts")] == [Triplet("one", "two")]
    nli = write(
        tmp_path / "nli.tsv",
        ["premise", "hypothesis", "label"],
        [("one", "two", "neutral"), ("one", "three", "contradiction"), ("one", "four", "-")],
    )
    texts = [text for row in open_rows(nli, kind="texts") for text in texts_of(row)]
    assert texts == ["one", "two", "one", "three"]


@pytest.mark.parametrize(
    ("columns", "row", "texts"),
    [
        (("sentence1", "sentence2", "score"), ("x", "y", 3), ("x", "y")),
        (("text1", "text2", "label"), ("x", "y", 1), ("x", "y")),
        (("query", "candidate", "label"), ("x", "y", 0), ("x", "y")),
        (("text", "label"), ("x", "sport"), ("x",)),
    ],
)
def test_who_wants_texts_alone_takes_files_of_every_kind(tmp_path, columns, row, texts):
    [found] = open_rows(write(tmp_path / "a.tsv", columns, [row]), kind="texts")
    assert texts_of(found) == texts


def test_every_row_says_its_texts():
    rows = {
        Text("a"): "a",
        ClassText("a", "x"): "a",
        Triplet("a", "b", ("c", "d")): "abcd",
        NliPair("a", "b", "neutral"): "ab",
        ScoredPair("a", "b", 1.0): "ab",
        ParaphrasePair("a", "b", True): "ab",
        RankedPair("a", "b", False): "ab",
        ParallelPair("a", "b"): "ab",
    }
    assert {row: "".join(texts_of(row)) for row in rows} == rows


def test_only_the_contrast_sees_a_text_twice(tiny):
    encoder = tiny("t5", readout="enc-mean")
    objective = Contrast(encoder, ContrastSettings(), compute=ComputeSettings())
    objective.module.train()
    texts = [Text("A man plays."), Text("Dogs run.")]
    pairs = [as_triplet(row) for row in texts]
    assert pairs == [Triplet("A man plays.", "A man plays."), Triplet("Dogs run.", "Dogs run.")]
    torch.manual_seed(3)
    assert objective.step(texts).metrics["alignment"] > 1e-3  # two views, with different dropout
    assert objective.step(pairs).metrics["alignment"] < 1e-9  # equal texts of a pair are one
    objective.module.eval()
    alone = objective.step(texts)
    assert alone.metrics["alignment"] < 1e-9
    assert alone.loss == pytest.approx(objective.step(pairs).loss, rel=1e-4)


def test_a_text_entails_itself():
    assert pairs_of(Text("a")) == [NliPair("a", "a", "entailment")]


def test_a_share_has_the_texts_that_it_always_had():
    """A share of texts was first drawn when each was a pair with itself, and recipes have such shares."""
    for text in (sentence() for _ in range(50)):
        assert is_in_share(Text(text), 0.3) == (text_place(f"{text}\0{text}") < 0.3)
        assert is_in_share(Text(text), (0.2, 0.6)) == (0.2 <= text_place(text) < 0.6)


def test_embed_reads_the_column_that_training_reads(tmp_path):
    for columns in (("id", "text"), ("id", "Sentence"), ("caption", "id"), ("text", "sentence")):
        row = [f"in {column}" for column in columns]
        path = write(tmp_path / "a.tsv", columns, [row])
        assert [*TextFile.open(path)] == [row.text for row in open_rows(path, kind="texts")]
    assert [*TextFile.open(path)] == ["in text"]


def test_embed_takes_empty_texts_and_training_does_not(tmp_path):
    path = write(tmp_path / "a.txt", None, ["one", "", "two"])
    assert [*TextFile.open(path)] == ["one", "", "two"]
    with pytest.raises(RowError, match=r"a\.txt:2: 'text' is empty"):
        open_rows(path, kind="texts")


def test_a_bad_value_is_named_by_the_column_of_the_file(tmp_path):
    path = write(tmp_path / "a.tsv", ["Sentence1", "Sentence2", "score"], [("a", "b", 1), ("c", " ", 2)])
    with pytest.raises(RowError, match=r"a\.tsv:3: 'Sentence2' is empty"):
        open_rows(path, kind="scored")


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("a.txt", "texts", "b125856ccec21595"),
        ("a.txt", "triplets", "b125856ccec21595"),
        ("nli.tsv", "triplets", "4d9d8d28b6bc39ac"),
        ("nli.tsv", "inference", "f32173b088eab349"),
        ("named.tsv", "nli", "6308c50c66e85ccd"),
    ],
)
def test_rows_have_the_hashes_that_they_had_under_other_names(tmp_path, name, kind, wanted):
    """By commit b135a02, where kinds were `triplets`, `labelled` and `nli`: candidates and positions stay good."""
    write(tmp_path / "a.txt", None, ["one", "two"])
    pairs = [("a", "b", "entailment"), ("a", "c", "neutral")]
    for file in ("nli.tsv", "named.tsv"):
        write(tmp_path / file, ["premise", "hypothesis", "label"], pairs)
    source = {"path": tmp_path / name, **({"kind": "nli"} if name == "named.tsv" else {})}
    assert open_rows(source, kind=kind).describe()["sha256"].startswith(wanted)


# One file, one meaning.

FILES = {
    "scored": (("sentence_A", "sentence_B", "Relatedness Score"), lambda i: (sentence(), sentence(), i % 6)),
    "triplets": (("sent0", "sent1", "hard_neg"), lambda i: (f"{i} {sentence()}", sentence(), sentence())),
    "parallel": (("src", "tgt"), lambda i: (f"{i} {sentence()}", sentence())),
    "nli": (
        ("sentence1", "sentence2", "gold_label"),
        lambda i: (f"{i // 2} a", sentence(), ("entailment", "contradiction")[i % 2]),
    ),
    "classes": (("Sentence", "label"), lambda i: (sentence(), ("sport", "town")[i % 2])),
    "rerank": (("question", "passage", "label"), lambda i: (f"{i // 4} a", sentence(), int(i % 4 == 0))),
    "paraphrase": (("text_a", "text_b", "label"), lambda i: (f"{i // 2} a", sentence(), i % 2)),
}
"""Columns by other names than the fields have, and the i-th row."""

TRAINED_AS = {"scored": ("scored", ScoredPair), "parallel": ("parallel", ParallelPair), "classes": ("triplets", Text)}


@pytest.mark.parametrize("kind", FILES)
def test_the_same_file_trains_and_evaluates(tmp_path, kind):
    columns, row = FILES[kind]
    path = write(tmp_path / "mine.tsv", columns, [row(i) for i in range(40)])
    wanted, type_of_row = TRAINED_AS.get(kind, ("triplets", Triplet))
    source = {"path": path, "kind": kind} if kind == "paraphrase" else path
    rows = [*open_rows(source, kind=wanted)]
    assert rows and {type(row) for row in rows} == {type_of_row}
    assert kind_of(path) == kind
    for task in (str(path), f"{kind}:{path}"):
        results = evaluate(Hashed(), tasks=[task]).tasks
        assert [*results] == [f"{kind}:{path}"]
        assert np.isfinite(results[f"{kind}:{path}"]["score"])


@pytest.mark.parametrize("kind", ["triplets", "nli"])
def test_evaluation_scores_the_triplets_that_training_learns_from(tmp_path, kind):
    columns, row = FILES[kind]
    path = write(tmp_path / "mine.tsv", columns, [row(i) for i in range(40)])
    [result] = evaluate(Hashed(), tasks=[str(path)]).tasks.values()
    learned = [*open_rows(path, kind="triplets")]
    assert result["num"] == len(learned)
    assert result["score"] == score_triplets(learned, Hashed().encode)["score"]


def test_pairs_with_a_verdict_become_triplets_by_their_first_text(tmp_path):
    rows = [("q", "yes", 1), ("q", "no", 0), ("r", "also", "1"), ("s", "never", 0.0), ("q", "too", 1)]
    wanted = [Triplet("q", "yes", ("no",)), Triplet("q", "too", ("no",)), Triplet("r", "also")]
    path = write(tmp_path / "rerank.tsv", ["query", "candidate", "label"], rows)
    assert [*open_rows(path, kind="triplets")] == wanted
    path = write(tmp_path / "paraphrase.tsv", ["sentence1", "sentence2", "label"], rows)
    assert [*open_rows({"path": path, "kind": "paraphrase"}, kind="triplets")] == wanted
    with pytest.raises(RowError, match=r"paraphrase\.tsv:2: the label '1' is unknown"):
        open_rows(path, kind="triplets")  # 0 may be entailment, as in RTE: nobody guesses
    path = write(tmp_path / "other.tsv", ["text1", "text2", "label"], rows)
    with pytest.raises(RowError, match=r"'label' may say .+ Where 1 marks the positives: kind: paraphrase"):
        open_rows(path, kind="triplets")


@pytest.mark.parametrize(
    ("columns", "row", "kind"),
    [
        ("sentence1 sentence2 score", "a b 1", "scored"),
        ("text1 text2 similarity", "a b 1", "scored"),
        ("sentence_A sentence_B relatedness_score entailment_judgment", "a b 3 NEUTRAL", "scored"),
        ("sentence1 sentence2 label", "a b 0", "paraphrase"),
        ("sentence1 sentence2 label", "a b entailment", "nli"),
        ("gold_label sentence1 sentence2", "- a b", "nli"),
        ("premise hypothesis label", "a b 0", "nli"),
        ("query candidate label", "a b 0", "rerank"),
        ("question document label", "a b 0", "rerank"),
        ("text label", "a b", "classes"),
        ("sentence label id", "a b 7", "classes"),
        ("anchor positive negative", "a b c", "triplets"),
        ("premise entailment contradiction", "a b c", "triplets"),
        ("anchor positive", "a b", "triplets"),
        ("question answer", "a b", "triplets"),
        ("source target", "a b", "parallel"),
        ("en zh", "a b", "parallel"),
    ],
)
def test_the_columns_of_a_file_tell_its_kind(tmp_path, columns, row, kind):
    path = write(tmp_path / "mine.tsv", columns.split(), [row.split()])
    assert [task.name for task in choose_tasks([str(path)])] == [f"{kind}:{path}"]
    assert [task.name for task in choose_tasks(f"{path},{kind}:{path}")] == [f"{kind}:{path}"]


def test_sets_are_told_by_their_list(tmp_path):
    (tmp_path / "sets.jsonl").write_text('{"captions": ["a b", "c d", "e f"]}\n{"captions": ["g h", "i j"]}\n')
    [task] = choose_tasks([str(tmp_path / "sets.jsonl")])
    assert task.name == f"triplets:{tmp_path / 'sets.jsonl'}"
    assert evaluate(Hashed(), tasks=[task.name]).tasks[task.name]["num"] == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name\tcolour\nx\ty\n", r"mine\.tsv: has the columns name, colour. .+\(rerank\)"),
        ("anchor\tpositive\tquality\nx\ty\t0\n", r"mine\.tsv: has the columns anchor, positive, quality"),
        ("text\nx\n", r"mine\.tsv: has the columns text"),
        ("", r"mine\.tsv: has the columns none"),
    ],
)
def test_a_file_that_cannot_be_scored_says_what_one_has(tmp_path, content, message):
    (tmp_path / "mine.tsv").write_text(content)
    with pytest.raises(InputError, match=message):
        choose_tasks([str(tmp_path / "mine.tsv")])


def test_a_file_that_is_not_there_is_no_unknown_task(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.tsv: no such file"):
        choose_tasks("nowhere.tsv")
    with pytest.raises(SettingError, match="STS12"):
        choose_tasks("STS122")


def test_texts_alone_are_nothing_to_score(tmp_path):
    path = write(tmp_path / "a.txt", None, ["one", "two"])
    with pytest.raises(InputError, match=r"a\.txt: has texts alone, and nothing to score them by"):
        evaluate(Hashed(), tasks=[f"triplets:{path}"])


def test_an_evaluation_names_no_setting_of_a_recipe(tmp_path):
    path = write(tmp_path / "a.tsv", ["sentence1", "sentence2"], [("a", "b")])
    with pytest.raises(RowError) as error:
        evaluate(Hashed(), tasks=[f"scored:{path}"])
    assert str(error.value) == (
        f"{path}:2: has no column for 'score'. It has: sentence1, sentence2. "
        "A scored file has the columns a, b, score, or others that stand for them."
    )
    path = write(tmp_path / "b.tsv", ["query", "candidate", "label"], [("a", "b", 1), ("a", "c", "perhaps")])
    with pytest.raises(RowError) as error:
        evaluate(Hashed(), tasks=[f"rerank:{path}"])
    assert str(error.value) == f"{path}:3: 'label' is 'perhaps', not 0 or 1. Fix the row."


def test_an_empty_text_is_scored_because_it_has_a_vector(tmp_path):
    path = write(tmp_path / "a.tsv", ["a", "b", "score"], [("one", "", 1), ("two", "two", 5), ("one", "two", 2)])
    [result] = evaluate(Hashed(), tasks=[str(path)]).tasks.values()
    assert result["num"] == 3


def test_the_class_of_a_text_may_be_a_number(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": sentence(), "label": i % 2}) + "\n" for i in range(30)))
    [result] = evaluate(Hashed(), tasks=[str(path)], classifier="sklearn").tasks.values()
    assert result["labels"] == ["0", "1"]
    path.write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": null}\n')
    with pytest.raises(RowError, match=r"a\.jsonl:2: 'label' is null"):
        evaluate(Hashed(), tasks=[str(path)])


def test_the_word_that_meant_two_kinds_is_refused_with_both_of_their_names():
    with pytest.raises(SettingError, match=r"kind 'labelled': is now called nli .*or classes"):
        open_rows({"path": "a.tsv", "kind": "labelled"}, kind="triplets")
    with pytest.raises(SettingError, match=r"labelled:a\.tsv: is now called classes:a\.tsv .*nli:a\.tsv"):
        choose_tasks("labelled:a.tsv")


def test_a_column_called_text_is_the_text_whatever_else_there_is(tmp_path):
    path = write(tmp_path / "news.tsv", ["id", "by", "text"], [("1", "bob", "A man plays."), ("2", "ann", "It rains.")])
    wanted = ["A man plays.", "It rains."]
    assert [*TextFile.open(path)] == [text for row in open_rows(path, kind="texts") for text in texts_of(row)] == wanted
    with pytest.raises(InputError, match="has the columns id, by, text"):
        choose_tasks(str(path))


def test_two_columns_are_languages_only_where_both_names_are_codes_of_one(tmp_path):
    path = write(tmp_path / "a.tsv", ["en", "zh_cn"], [("one", "two")])
    assert [*open_rows(path, kind="parallel")] == [ParallelPair("one", "two")]
    path = write(tmp_path / "b.tsv", ["xx", "by"], [("one", "two")])
    with pytest.raises(RowError, match="which are not known"):
        open_rows(path, kind="parallel")


def test_adapt_takes_files_with_one_score_alone(tmp_path):
    path = write(tmp_path / "mine.tsv", ["text_a", "text_b", "score"], [("a", "b", 1)])
    assert own_tasks([str(path), f"scored:{path}"]) == (f"scored:{path}",)
    other = write(tmp_path / "other.tsv", ["en", "zh"], [("a", "b")])
    for name in (str(other), f"geometry:{path}", "sts"):
        with pytest.raises(SettingError, match="no kind of file with one score"):
            own_tasks([name])


def test_a_list_of_sentences_becomes_a_file_that_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sentences = ["A man plays a guitar.", "Two lines\nin one text."]
    (file,) = given_files(sentences)
    assert given_files(sentences) == [file] != given_files(sentences[:1])
    assert [*TextFile.open(Path(file))] == sentences


def test_files_are_named_by_a_string_or_by_paths(tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    assert given_files("in.txt") == given_files(Path("in.txt")) == given_files([Path("in.txt")]) == ["in.txt"]
    with pytest.raises(InputError, match="is a file, and a list of strings is texts"):
        given_files([str(tmp_path / "in.txt")])
    given_files(["x" * 5000, "a\0b"])  # no names of files
