"""The findings of `adapt`: the verdict, the warnings, the neighbours, and the texts that come with it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tercet.adaptation.findings import Findings, Measure, recognised
from tercet.adaptation.neighbours import compare, spread
from tercet.adaptation.page import document_of
from tercet.data.rows.words import as_words
from tercet.reporting.html import to_html
from tercet.reporting.markdown import to_markdown
from tercet.training.recipe import read_recipe

ROOT = Path(__file__).parents[2]


def findings_with(*measures, **more):
    audit = {
        "num_triplets": 30,
        "sentences": {"num": 40, "num_kept": 40, "dropped": {}, "sources": {"in.txt": {"num_read": 40, "num_bad": 0}}},
        "filters": {"num": 40, "num_kept": 30, "dropped": {"alpha": {"num": 10, "samples": []}}},
    }
    recipe = read_recipe(ROOT / "recipes" / "gense-nli.yaml")
    given = {
        "command": "tercet adapt",
        "recipe": recipe,
        "num_steps": 40,
        "best_step": 8,
        "num_learned": 20,
        "recognised": (70, 200),
        "samples": [],
        "examples": [],
    }
    return Findings(audit=audit, measures=[*measures], num_pool=0, **{**given, **more})


def measure(group, before, after, **more):
    return Measure(group, group, "accuracy", 10, before, after, **more)


@pytest.mark.parametrize(
    ("own", "keeps_start"), [([], False), ([(50, 49)], True), ([(50, 50)], False), ([(50, 49), (50, 52)], False)]
)
def test_the_mean_over_ones_own_rows_decides(own, keeps_start):
    findings = findings_with(*(measure("own", *pair) for pair in own), measure("synthetic", 1, 2))
    assert findings.keeps_start is keeps_start
    assert findings.verdict.startswith("Kept: the start" if keeps_start else "Kept: the adapted encoder")


def test_what_was_forgotten_and_what_is_not_real_is_said():
    good = findings_with(measure("own", 1, 2), measure("synthetic", 1, 2), measure("general", 80, 78.5))
    assert good.warnings == []
    bad = findings_with(measure("synthetic", 2, 2), measure("general", 80, 77))
    text = to_markdown(document_of(bad, {}), "")
    assert "3.0 points less on general" in text
    assert "Nothing was gained" in text
    assert "synthetic" in bad.warnings[-1] and "--eval" in bad.warnings[-1]


def test_a_sentence_is_recognised_where_it_is_the_nearest_to_what_follows_from_it(tmp_path):
    spots = {"north": [0, 1], "east": [1, 0], "south": [0, -1], "up": [1, 9], "right": [9, 1], "left": [-9, -1]}
    spots["nearer"] = [1, 7]
    rows = [("north", "right"), ("north", "up"), ("east", "right"), ("south", "left")]  # the last of a sentence counts
    rows = [json.dumps({"anchor": anchor, "positive": positive}) for anchor, positive in [*rows, ("south", "right")]]
    (tmp_path / "triplets.jsonl").write_text("\n".join(rows))

    def found(*others):
        pool = ["north", *others]
        return recognised(tmp_path / "triplets.jsonl", pool, lambda texts: np.array([spots[t] for t in texts], float))

    assert found() == (2, 3)
    assert found("nearer") == (1, 3)


def test_a_synthesizer_that_does_not_know_the_text_is_told_of():
    measures = measure("own", 1, 2), measure("synthetic", 1, 2)
    assert findings_with(*measures, recognised=(70, 200)).warnings == []
    (warning,) = findings_with(*measures, recognised=(69, 200)).warnings
    assert "(69 of 200 find theirs)" in warning and "--synthesizer" in warning


def test_the_report_escapes_what_users_write():
    bad = findings_with(measure("synthetic", 1, 2), measure("general", 1, 1))
    bad = Findings(**{**vars(bad), "samples": [{"anchor": "<script>*x*", "positive": "<b>", "positive_true": 1.0}]})
    assert "<script>" not in to_html(document_of(bad, {}))
    assert "\\*x\\*" in to_markdown(document_of(bad, {}), "")


def test_queries_are_typical_of_different_parts_of_the_corpus():
    rng = np.random.default_rng(1)
    centres = np.linalg.qr(rng.normal(size=(8, 8)))[0][:5]
    spots = [centres[i % 5] + rng.normal(size=8) * (0.02 if i < 5 else 0.2) for i in range(100)]
    vectors = np.stack(spots) / np.linalg.norm(spots, axis=1, keepdims=True)
    rows = spread(vectors, 5)
    assert sorted(row % 5 for row in rows) == [0, 1, 2, 3, 4]
    for row in rows:
        part = vectors[row % 5 :: 5]
        assert vectors[row] @ part.mean(0) >= np.median(part @ part.mean(0))


def test_few_texts_have_few_neighbours():
    vectors = np.eye(3, dtype=np.float32)
    examples = compare(["a", "b", "c"], vectors, vectors, num=5, k=3)
    assert {example.query for example in examples} == {"a", "b", "c"}
    assert all(len(example.after) == 2 and not example.num_new for example in examples)


def test_general_sentences_are_150_different_ones_and_their_paraphrases():
    with (ROOT / "src" / "tercet" / "adaptation" / "general.tsv").open(newline="") as stream:
        rows = [*csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]
    assert rows[0] == ["text", "paraphrase"]
    assert len(rows) == 151 and {len(row) for row in rows} == {2}
    texts = [as_words(text) for row in rows[1:] for text in row]
    assert len(set(texts)) == len(texts)


def test_the_example_has_300_different_sentences_of_6_to_25_words():
    texts = (ROOT / "examples" / "town.txt").read_text().splitlines()
    assert len(texts) == 300 == len({as_words(text) for text in texts})
    assert all(6 <= len(text.split()) <= 25 for text in texts)
