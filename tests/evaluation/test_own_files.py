"""Files of one's own that cannot be scored: the error says which line or label, in the user's words."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from tercet import InputError, RowError
from tercet.evaluation.evaluate import evaluate

HALF = "a \ud83d b"
"""The first half of a character that JSON may write as a pair."""


@pytest.mark.parametrize(
    ("kind", "row", "column"),
    [
        ("scored", {"sentence1": "a", "sentence2": HALF, "score": 1}, "sentence2"),
        ("rerank", {"query": HALF, "candidate": "b", "label": 1}, "query"),
        ("classes", {"text": "a", "label": HALF}, "label"),
        ("triplets", {"anchor": HALF, "positive": "b", "negative": "c"}, "anchor"),
    ],
)
def test_half_a_character_is_named_by_file_and_line(tmp_path, tiny, kind, row, column):
    whole = {name: {"score": 2, "label": 1}.get(name, "x") for name in row}
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(whole) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(RowError, match=rf"mine\.jsonl:2: '{column}' has half a surrogate pair"):
        evaluate(tiny(), tasks=[f"{kind}:{path}"])


@pytest.mark.parametrize("cache", [False, "cache"])
def test_half_a_character_elsewhere_names_the_task(tmp_path, tiny, cache):
    forums = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()
    folder = tmp_path / "cqadupstack"
    folder.mkdir()
    (folder / "corpus.json").write_text(json.dumps({forum: {"1": "x", "2": HALF} for forum in forums}))
    (folder / "retrieval_split.json").write_text(json.dumps({"test": {forum: {"1": ["2"]} for forum in forums}}))
    with pytest.raises(InputError, match=r"cqadupstack/corpus\.json:android: question 2 has no text"):
        evaluate(tiny(), tasks="CQADupStack", data=tmp_path, cache=cache and tmp_path / cache)


@pytest.mark.parametrize("kind", ["scored", "parallel"])
def test_a_file_that_is_not_there_is_an_error(tmp_path, kind):
    with pytest.raises(InputError, match=r"nowhere\.tsv: no such file"):
        evaluate(Random(), tasks=[f"{kind}:{tmp_path / 'nowhere.tsv'}"])


class Random:
    """An encoder that knows nothing."""

    def encode(self, sentences):
        return np.random.default_rng(0).normal(size=(len(sentences), 4))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"cats": 30, "dogs": 30, "zebras": 2}, "the label 'zebras' has 2 rows, .+ 3 of every label"),
        ({"cats": 11, "dogs": 9}, "the most frequent label, 'cats', has 11 rows, .+ 12 of one label"),
        ({"cats": 30}, "all 30 rows have the label 'cats'"),
    ],
)
def test_too_few_texts_of_a_class_are_named_by_their_label(tmp_path, counts, message):
    with pytest.raises(InputError, match=rf"classes:.+mine\.tsv: {message}"):
        evaluate(Random(), tasks=[classes(tmp_path, counts)])


@pytest.mark.parametrize("counts", [{"cats": 12, "zebras": 3}, {"cats": 12, "dogs": 10, "zebras": 3}])
def test_the_fewest_texts_that_are_asked_for_suffice(tmp_path, counts):
    task = classes(tmp_path, counts)
    assert evaluate(Random(), tasks=[task], classifier="sklearn")["tasks"][task]["num"] == sum(counts.values())


def classes(folder, counts):
    rows = [f"a text about {label} {i}\t{label}" for label, num in counts.items() for i in range(num)]
    (folder / "mine.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return f"classes:{folder / 'mine.tsv'}"


class Fixed:
    """An encoder whose vectors have a mean, and directions of unequal variance."""

    def encode(self, sentences):
        rng = np.random.default_rng(5)
        mixing = rng.normal(size=(6, 6)) * [5, 3, 2, 1, 0.5, 0.2]
        return np.array([np.random.default_rng(int(text)).normal(size=6) @ mixing + 7 for text in sentences])


def test_vectors_are_whitened_by_those_of_the_task_s_own_texts(tmp_path):
    rng, files = np.random.default_rng(1), {}
    for name, numbers in (("one", range(200)), ("two", range(100, 300))):
        pairs = [(a, a + 1, float(rng.random())) for a in numbers if a % 2 == 0]
        files[str(tmp_path / f"{name}.tsv")] = pairs
        (tmp_path / f"{name}.tsv").write_text(
            "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in pairs)
        )
    found, plain = (evaluate(Fixed(), tasks=list(files), whiten=whiten) for whiten in (True, False))
    assert found.settings["whiten"] is True and "whiten" not in plain.settings
    for name, pairs in files.items():
        a, b, gold = zip(*pairs, strict=True)
        vectors = Fixed().encode([*a, *b])
        directions, sizes, _ = np.linalg.svd(np.cov(vectors.T))  # as the released code of BERT-whitening has it
        changed = (vectors - vectors.mean(0)) @ directions @ np.diag(sizes**-0.5)
        left, right = np.split(changed / np.linalg.norm(changed, axis=1, keepdims=True), 2)
        [task] = [task for task in found.tasks if task.endswith(name.rpartition("/")[2])]
        assert found.tasks[task]["score"] == pytest.approx(
            100 * spearmanr((left * right).sum(1), gold).statistic, abs=0.1
        )
        assert abs(found.tasks[task]["score"] - plain.tasks[task]["score"]) > 1
