"""The findings of `adapt`: the verdict, the warnings, the neighbours, and the texts that come with it."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from tercet.adaptation.findings import Findings, Learned, Measure, domain_of
from tercet.adaptation.neighbours import compare, spread
from tercet.adaptation.page import document_of
from tercet.data.rows.words import as_words
from tercet.evaluation.intervals import Items
from tercet.reporting.html import to_html
from tercet.reporting.markdown import to_markdown
from tercet.training.recipe import read_recipe

ROOT = Path(__file__).parents[2]


def findings_with(*measures, domain=None, keep_anyway=False, share=1.0, learned=()):
    recipe = read_recipe(ROOT / "recipes" / "gense-nli.yaml")
    return Findings(
        command="tercet adapt",
        recipe=recipe,
        num_steps=40,
        share=share,
        keep_anyway=keep_anyway,
        learned=[*learned],
        measures=[*measures],
        domain=domain,
        examples=[],
        num_pool=0,
    )


def measure(group, gain, *, by=1.0):
    """A measure whose interval reaches so far to both sides."""
    return Measure(group, f"{group} rows", "accuracy", 10, 50, 50 + gain, gain - by, gain + by)


@pytest.mark.parametrize(
    ("domain", "general", "kept", "reason"),
    [
        (3.0, -0.4, "the adapted encoder", r"\+3\.0 points \(95% interval \+2\.0 to \+4\.0\), on general rows -0\.4\."),
        (0.9, 0.0, "the start", "that may be chance"),
        (-3.0, 0.0, "the start", "it is worse"),
        (3.0, -0.6, "the start", r"-0\.6, and at most 0\.5 may be lost there"),
        (None, 0.0, "the start", r"Too few texts are held out .+ \(--eval\)"),
    ],
)
def test_the_result_is_kept_where_it_is_better_by_more_than_chance_and_forgot_little(domain, general, kept, reason):
    decides = None if domain is None else measure("own", domain)
    measures = [*([] if decides is None else [decides]), measure("general", general)]
    findings = findings_with(*measures, domain=decides)
    assert findings.verdict.startswith(f"Kept: {kept}. ") and re.search(reason, findings.verdict)
    assert findings.keeps_start is (kept == "the start")
    anyway = findings_with(*measures, domain=decides, keep_anyway=True)
    assert not anyway.keeps_start
    assert any("--keep-anyway" in warning for warning in anyway.warnings) is findings.keeps_start


def test_what_was_not_measured_and_what_was_moved_back_is_said():
    own = measure("own", 1.5)
    assert findings_with(own, measure("general", 0), domain=own).warnings == []
    held_out = measure("held-out", 1.5)
    moved, judged = findings_with(held_out, measure("general", 0), domain=held_out, share=0.5).warnings
    assert "50% of the way" in moved and "--eval" in judged


def test_your_own_rows_decide_and_without_them_the_held_out_texts():
    def judged(*scores):
        values = {"own": scores[0], "held-out": scores[1]}
        found = []
        for group, score in values.items():
            result = {"metric": "MAP", "score": score, "num": 30, "items": Items("mean", np.full(30, score / 100))}
            found.append((group, group, result))
        return found

    domain = domain_of(judged(50.0, 40.0), judged(52.0, 30.0))
    assert (domain.group, domain.gain) == ("own", 2.0)
    assert (domain.low, domain.high) == (pytest.approx(2), pytest.approx(2))


def test_the_report_escapes_what_users_write():
    sample = {"anchor": "<script>*x*", "positive": "<b>", "positive_true": 1.0}
    sentences = {"num": 1, "num_kept": 1, "dropped": {}, "sources": {"in.txt": {"num_read": 1, "num_bad": 0}}}
    bad = findings_with(measure("general", 0), learned=[Learned("triplets", 1, sentences, None, [sample])])
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
