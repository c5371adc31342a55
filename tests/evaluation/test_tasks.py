"""Tasks on small files in their original formats, against scores computed here by scipy and scikit-learn."""

import functools
import hashlib
import json

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch

from tercet import Encoder, InputError, NonFiniteError, OutputError, RowError, SettingError
from tercet.data.rows.kinds import Triplet
from tercet.data.sets.groups import GROUPS
from tercet.evaluation.evaluate import evaluate
from tercet.evaluation.geometry import alignment, anisotropy, uniformity
from tercet.evaluation.tasks.table import TASKS, choose_tasks
from tercet.evaluation.tasks.translation import parallel_geometry, retrieval_accuracy
from tercet.evaluation.tasks.triplets import score_triplets
from tercet.evaluation.timing import forget_peak, in_turns, peak_rss_gb, ratio, spread

RNG = np.random.default_rng(1)


class Hashed:
    """An encoder whose vectors depend on the text and on nothing else; it counts what it embeds."""

    def __init__(self):
        self.seen = []

    def encode(self, sentences):
        self.seen += sentences
        return np.stack([self.vector(text) for text in sentences])

    @staticmethod
    def vector(text):
        words = text.split() or [""]
        weights = [20 if word in ("great", "awful", "entailment", "neutral", "contradiction") else 1 for word in words]
        return np.average([Hashed.word(word) for word in words], axis=0, weights=weights)

    @staticmethod
    @functools.cache
    def word(word):
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).normal(size=16)


def cos(a, b):
    u, v = Hashed.vector(a), Hashed.vector(b)
    return u @ v / np.linalg.norm(u) / np.linalg.norm(v)


def write(root, name, content, encoding="utf-8"):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))


WORDS = "dog cat runs sleeps house river the a big small green old quickly never".split()


def sentence():
    return " ".join(RNG.choice(WORDS, RNG.integers(2, 7)))


def pair_rows(num):
    return [(sentence(), sentence(), round(float(RNG.uniform(0, 5)), 3)) for _ in range(num)]


def spearman_of(rows):
    return 100 * scipy.stats.spearmanr([cos(a, b) for a, b, _ in rows], [gold for *_, gold in rows]).statistic


def run(root, *tasks, **options):
    return evaluate(Hashed(), tasks=list(tasks), data=root, **options)


def write_sts(root, year, rows_of_subset):
    for subset, rows in rows_of_subset.items():
        folder = f"senteval/STS/STS{year}-en-test"
        write(root, f"{folder}/STS.input.{subset}.txt", "".join(f"{a}\t{b}\textra\n" for a, b, _ in rows))
        write(root, f"{folder}/STS.gs.{subset}.txt", "".join(f"{gold}\n" for *_, gold in rows))


def test_a_year_of_sts_is_scored_over_all_pairs_and_blank_gold_lines_are_dropped(tmp_path):
    subsets = {name: pair_rows(30) for name in ("FNWN", "headlines", "OnWN")}
    with_blanks = {name: [*rows, ("not", "scored", "")] for name, rows in subsets.items()}
    write_sts(tmp_path, 13, with_blanks)
    write(tmp_path, "senteval/STS/STS13-en-test/STS.gs.ALL.txt", "1\n")
    result = run(tmp_path, "STS13")["tasks"]["STS13"]
    assert result["score"] == pytest.approx(spearman_of([row for rows in subsets.values() for row in rows]), abs=1e-4)
    assert result["subsets"] == pytest.approx({n: spearman_of(rows) for n, rows in subsets.items()}, abs=1e-4)
    assert result["mean"] == pytest.approx(np.mean(list(result["subsets"].values())))
    assert result["num"] == 90
    assert result["note"] == "1500 pairs were expected"
    assert set(result["data"]) == {
        f"senteval/STS/STS13-en-test/STS.{kind}.{name}.txt" for kind in ("input", "gs") for name in subsets
    }


def test_the_weighted_mean_weighs_subsets_by_their_pairs(tmp_path):
    sizes = {"answer-answer": 5, "headlines": 40, "plagiarism": 7, "postediting": 9, "question-question": 11}
    subsets = {name: pair_rows(size) for name, size in sizes.items()}
    write_sts(tmp_path, 16, subsets)
    result = run(tmp_path, "STS16")["tasks"]["STS16"]
    scores = [spearman_of(rows) for rows in subsets.values()]
    assert result["weighted_mean"] == pytest.approx(np.average(scores, weights=list(sizes.values())), abs=1e-4)


def test_sts_b_sick_chinese_and_biosses_are_read_in_their_formats(tmp_path):
    rows = pair_rows(25)
    stsb = "".join(f"news\tf\t2016\t{i}\t{g}\t{a}\t{b}\textra\n" for i, (a, b, g) in enumerate(rows))
    write(tmp_path, "senteval/STS/STSBenchmark/sts-test.csv", stsb)
    sick = [(a, b, 1 + g * 0.8) for a, b, g in rows]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    body = "".join(f"{i}\t{a}\t{b}\t{g}\tNEUTRAL\n" for i, (a, b, g) in enumerate(sick))
    write(tmp_path, "senteval/SICK/SICK_test_annotated.txt", header + body)
    write(tmp_path, "zh_stsb/sts-b-test.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in rows))
    biosses = [(a, b, g * 0.8) for a, b, g in rows]
    write(
        tmp_path,
        "biosses/pairs.tsv",
        "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{g}\n" for a, b, g in biosses),
    )
    results = run(tmp_path, "STSB", "SICK-R", "ZH-STSB", "BIOSSES")
    for name in ("STSB", "SICK-R", "ZH-STSB", "BIOSSES"):
        assert results["tasks"][name]["score"] == pytest.approx(spearman_of(rows), abs=1e-4), name


def test_twitter_url_drops_undecided_pairs_and_is_scored_by_average_precision(tmp_path):
    rows = [(sentence(), sentence(), votes) for votes in [0, 1, 2, 3, 4, 5, 6] * 8]
    write(
        tmp_path,
        "twitter_url/Twitter_URL_Corpus_test.txt",
        "".join(f"{a}\t{b}\t({votes}, 6)\thttp://t.co\n" for a, b, votes in rows),
    )
    decided = [(cos(a, b), votes > 3) for a, b, votes in rows if votes != 3]
    expected = 100 * sklearn.metrics.average_precision_score([y for _, y in decided], [s for s, _ in decided])
    result = run(tmp_path, "TwitterURL")["tasks"]["TwitterURL"]
    assert (result["score"], result["num"]) == (pytest.approx(expected, abs=1e-4), len(decided))


def test_twitter_url_in_aligned_files_gives_the_same_score(tmp_path):
    rows = [(sentence(), sentence(), int(label)) for label in RNG.integers(0, 2, 40)]
    for name, column in (("a.toks", 0), ("b.toks", 1), ("sim.txt", 2)):
        write(tmp_path, f"twitter_url/test/{name}", "".join(f"{row[column]}\n" for row in rows))
    expected = sklearn.metrics.average_precision_score([y for *_, y in rows], [cos(a, b) for a, b, _ in rows])
    assert run(tmp_path, "TwitterURL")["tasks"]["TwitterURL"]["score"] == pytest.approx(100 * expected, abs=1e-4)


@pytest.mark.parametrize(
    ("labels", "positive", "undecided"),
    [("012345", {4, 5}, {3}), (["(0, 5)", "(1, 4)", "(2, 3)", "(3, 2)", "(4, 1)", "(5, 0)"], {3, 4, 5}, {2})],
)
def test_pit_knows_expert_grades_and_votes(tmp_path, labels, positive, undecided):
    rows = [(sentence(), sentence(), label) for label in list(labels) * 6]
    write(tmp_path, "pit/test.data", "".join(f"7\ttopic\t{a}\t{b}\t{label}\ttags\ttags\n" for a, b, label in rows))
    grades = [int(str(label).strip("()")[0]) for *_, label in rows]
    kept = [(cos(a, b), g in positive) for (a, b, _), g in zip(rows, grades, strict=True) if g not in undecided]
    expected = 100 * sklearn.metrics.average_precision_score([y for _, y in kept], [s for s, _ in kept])
    result = run(tmp_path, "PIT")["tasks"]["PIT"]
    assert (result["score"], result["num"]) == (pytest.approx(expected, abs=1e-4), len(kept))


def test_askubuntu_reranks_the_listed_candidates_by_title_and_skips_queries_without_an_answer(tmp_path):
    titles = {str(i): sentence() for i in range(60)}
    write(tmp_path, "askubuntu/text_tokenized.txt", "".join(f"{i}\t{t}\tbody of {i}\n" for i, t in titles.items()))
    lines, expected = [], []
    for query in range(10):
        candidates = [str(i) for i in RNG.choice(np.arange(10, 60), 20, replace=False)]
        relevant = [] if query == 3 else candidates[:3]
        scores = " ".join(["1.0"] * 20)
        lines.append(f"{query}\t{' '.join(relevant)}\t{' '.join(candidates)}\t{scores}\n")
        if relevant:
            cosines = [cos(titles[str(query)], titles[c]) for c in candidates]
            expected.append(sklearn.metrics.average_precision_score([c in relevant for c in candidates], cosines))
    write(tmp_path, "askubuntu/test.txt", "".join(lines))
    result = run(tmp_path, "AskUbuntu")["tasks"]["AskUbuntu"]
    assert (result["score"], result["num"]) == (pytest.approx(100 * np.mean(expected), abs=1e-4), 9)


FORUMS = "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress".split()


def test_cqadupstack_is_map_at_100_over_the_pool_without_the_queries(tmp_path):
    corpus = {forum: {f"{forum}{i}": f"{sentence()} {i}" for i in range(130)} for forum in FORUMS}
    split = {forum: {f"{forum}{q}": [f"{forum}{50 + q}", f"{forum}{70 + q}"] for q in range(4)} for forum in FORUMS}
    write(tmp_path, "cqadupstack/corpus.json", json.dumps(corpus))
    write(tmp_path, "cqadupstack/retrieval_split.json", json.dumps({"test": split, "valid": {}}))
    means = []
    for forum in FORUMS:
        pool = [q for q in corpus[forum] if q not in split[forum]]
        scores = []
        for query, relevant in split[forum].items():
            cosines = np.array([cos(corpus[forum][query], corpus[forum][q]) for q in pool])
            top = np.argsort(-cosines)[:100]
            hits = [pool[i] in relevant for i in top]
            scores.append(sklearn.metrics.average_precision_score(hits, cosines[top]) if any(hits) else 0)
        means.append(np.mean(scores))
    result = run(tmp_path, "CQADupStack")["tasks"]["CQADupStack"]
    assert result["score"] == pytest.approx(100 * np.mean(means), abs=1e-3)
    assert len(result["subsets"]) == 12


def test_translation_retrieval_counts_nearest_neighbours_both_ways(tmp_path):
    english = [f"{sentence()} {i}" for i in range(12)]
    chinese = [english[i] if i < 9 else english[0] for i in range(12)]
    write(tmp_path, "ntrex/newstest2019-src.eng.txt", "\n".join(english) + "\n")
    write(tmp_path, "ntrex/newstest2019-ref.eng-GB.txt", "\n".join(english) + "\n")
    write(tmp_path, "ntrex/newstest2019-ref.zho-CN.txt", "\n".join(chinese) + "\n")
    result = run(tmp_path, "retrieval")["tasks"]["retrieval"]
    assert set(result["subsets"]) == {"eng-zho-CN", "zho-CN-eng"}
    assert result["subsets"]["zho-CN-eng"] == pytest.approx(75)
    assert retrieval_accuracy(np.eye(4), np.eye(4)[::-1]) == (0.0, 0.0)


@pytest.mark.parametrize(("num_pairs", "num_different"), [(1000, 750), (1750, 750), (1749, None)])
def test_no_sentence_is_drawn_twice_where_there_are_enough(num_pairs, num_different):
    embedded = []

    def embed(texts):
        embedded.append(texts)
        return Hashed().encode(texts)

    parallel_geometry([(f"source {i}", f"target {i}") for i in range(num_pairs)], embed, embed)
    drawn = embedded[0][250:]
    assert len(drawn) == 750
    assert len(set(drawn)) == num_different if num_different else len(set(drawn)) < 749


def test_geometry_equals_its_definitions_written_out():
    vectors = RNG.normal(size=(40, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    others = vectors[::-1]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(vectors) for j, b in enumerate(vectors) if i != j]
    paired = [np.linalg.norm(a - b) for a, b in zip(vectors, others, strict=True)]
    assert alignment(vectors, others) == pytest.approx(np.mean(np.square(paired)))
    assert alignment(vectors, others, as_printed=True) == pytest.approx(np.mean(paired))
    assert uniformity(vectors) == pytest.approx(np.log(np.mean(np.exp(-2 * np.square(distances)))))
    assert uniformity(vectors, as_printed=True) == pytest.approx(np.log(np.mean(np.exp(-2 * np.array(distances)))))
    cosines = [a @ b for i, a in enumerate(vectors) for j, b in enumerate(vectors) if i != j]
    assert anisotropy(vectors) == pytest.approx(np.mean(cosines))


def test_geometry_aligns_pairs_with_a_gold_score_above_four(tmp_path):
    rows = [(sentence(), sentence(), gold) for gold in (0.5, 4.0, 4.2, 5.0, 3.0)]
    stsb = "".join(f"x\tx\tx\t{i}\t{g}\t{a}\t{b}\n" for i, (a, b, g) in enumerate(rows))
    write(tmp_path, "senteval/STS/STSBenchmark/sts-dev.csv", stsb)
    result = run(tmp_path, "geometry")["tasks"]["geometry"]
    expected = np.mean([2 - 2 * cos(a, b) for a, b, gold in rows if gold > 4])
    assert (result["alignment"], result["set"]) == (pytest.approx(expected, abs=1e-5), "STS-B dev")


LABELLED = [(f"{sentence()} {'great' if label else 'awful'}", label) for label in [0, 1] * 100]


def test_transfer_tasks_are_read_in_their_formats(tmp_path):
    for folder, files in (
        ("MR", ("rt-polarity.neg", "rt-polarity.pos")),
        ("CR", ("custrev.neg", "custrev.pos")),
        ("SUBJ", ("subj.objective", "subj.subjective")),
        ("MPQA", ("mpqa.neg", "mpqa.pos")),
    ):
        for wanted, file in enumerate(files):
            text = "".join(f"{text} \xe9t\xe9\n" for text, label in LABELLED if label == wanted)
            write(tmp_path, f"senteval/{folder}/{file}", text, "latin-1")
    for split in ("train", "dev", "test"):
        write(tmp_path, f"senteval/SST/binary/sentiment-{split}", "".join(f"{t} \t{y}\n" for t, y in LABELLED))
    trec = "".join(f"{('HUM:ind', 'LOC:city')[y]} {t} ?\n" for t, y in LABELLED)
    for file in ("train_5500.label", "TREC_10.label"):
        write(tmp_path, f"senteval/TREC/{file}", trec + "NUM:date When was caf\xe9 ?\n" * 12, "latin-1")
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    mrpc = "".join(f"{y}\t1\t2\t{t}\t{t if y else sentence()}\n" for t, y in LABELLED)
    for split in ("train", "test"):
        write(tmp_path, f"senteval/MRPC/msr_paraphrase_{split}.txt", header + mrpc)
    results = run(tmp_path, "transfer")
    assert not results["missing"]
    assert results["averages"]["transfer"]["complete"]
    for name in GROUPS["transfer"]:
        assert results["tasks"][name]["score"] > 90, name
    assert results["tasks"]["MR"]["num"] == 200
    assert results["tasks"]["MRPC"]["f1"] > 90


GLUE = {
    "CoLA": ("dev.tsv", "train.tsv", None, lambda t, y: f"gj04\t{y}\t\t{t}"),
    "SST-2": ("dev.tsv", "train.tsv", "sentence\tlabel", lambda t, y: f"{t}\t{y}"),
    "MRPC": (
        "dev.tsv",
        "train.tsv",
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        lambda t, y: f"{y}\t1\t2\t{t}\t{t if y else sentence()}",
    ),
    "STS-B": (
        "dev.tsv",
        "train.tsv",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        lambda t, y: f"0\tx\tx\tx\t0\tn\tn\t{t}\t{t if y else sentence()}\t{4.5 if y else 0.5}",
    ),
    "QQP": (
        "dev.tsv",
        "train.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        lambda t, y: f"0\t1\t2\t{t}\t{t if y else sentence()}\t{y}",
    ),
    "QNLI": (
        "dev.tsv",
        "train.tsv",
        "index\tquestion\tsentence\tlabel",
        lambda t, y: f"0\t{t}\t{t if y else sentence()}\t{'entailment' if y else 'not_entailment'}",
    ),
    "RTE": (
        "dev.tsv",
        "train.tsv",
        "index\tsentence1\tsentence2\tlabel",
        lambda t, y: f"0\t{t}\t{t if y else sentence()}\t{'entailment' if y else 'not_entailment'}",
    ),
}


def write_glue(root):
    rows = [(sentence() + (" great" if y else " awful"), y) for y in [0, 1] * 300]
    for folder, (dev, train, header, line) in GLUE.items():
        for file in (dev, train):
            text = "".join(line(t, y) + "\n" for t, y in rows)
            write(root, f"glue/{folder}/{file}", (f"{header}\n" if header else "") + text)
    mnli = ["entailment", "neutral", "contradiction"]
    for file in ("dev_matched.tsv", "dev_mismatched.tsv", "train.tsv"):
        body = "".join(f"{i}\t{sentence()}\t{mnli[i % 3]} {sentence()}\t{mnli[i % 3]}\n" for i in range(600))
        write(root, f"glue/MNLI/{file}", "index\tsentence1\tsentence2\tgold_label\n" + body)


def test_all_nine_tasks_of_sentglue_are_read_trained_and_scored(tmp_path):
    write_glue(tmp_path)
    results = run(tmp_path, "sentglue")
    assert not results["missing"]
    assert set(results["tasks"]) == set(GROUPS["sentglue"])
    for name, result in results["tasks"].items():
        assert result["score"] > 80, name
        assert result["num_train"] == 600
    assert results["tasks"]["glue-CoLA"]["metric"] == "matthews"
    assert results["tasks"]["glue-STSB"]["cosine_spearman"] > 50
    assert results["tasks"]["glue-QQP"]["f1"] > 80


def test_without_a_training_file_only_what_needs_none_is_scored(tmp_path):
    write_glue(tmp_path)
    for file in tmp_path.rglob("train.tsv"):
        file.unlink()
    results = run(tmp_path, "sentglue")
    assert list(results["tasks"]) == ["glue-STSB"]
    assert results["tasks"]["glue-STSB"]["protocol"] == "cosine alone: there is no training file"
    assert "needs training rows" in results["missing"]["glue-RTE"]


def test_missing_tasks_are_never_averaged_in(tmp_path):
    for name in ("STS12", "STS15"):
        from tercet.evaluation.tasks.sts import _YEARS

        write_sts(tmp_path, name[3:], {subset: pair_rows(20) for subset in _YEARS[name]})
    results = run(tmp_path, "sts")
    assert set(results["missing"]) == {"STS13", "STS14", "STS16", "STSB", "SICK-R"}
    average = results["averages"]["sts"]
    assert average["score"] == pytest.approx(np.mean([results["tasks"][n]["score"] for n in ("STS12", "STS15")]))
    assert (average["num_tasks"], average["of"], average["complete"]) == (2, 7, False)


def test_the_selection_set_is_in_no_group():
    assert "STSB-dev" in TASKS
    assert not any("STSB-dev" in names for names in GROUPS.values())
    assert [len(GROUPS[g]) for g in ("sts", "transfer", "sentglue", "domain")] == [7, 7, 9, 5]


OWN = {
    "scored": ("sentence1\tsentence2\tscore\n", lambda a, b, y: f"{a}\t{b}\t{y + 0.5}\n"),
    "paraphrase": ("sentence1\tsentence2\tlabel\n", lambda a, b, y: f"{a}\t{b}\t{y}\n"),
    "rerank": ("query\tcandidate\tlabel\n", lambda a, b, y: f"query {len(a) % 5}\t{b}\t{y}\n"),
}


@pytest.mark.parametrize("kind", OWN)
def test_an_own_task_is_a_file(tmp_path, kind):
    header, line = OWN[kind]
    rows = [(sentence(), sentence(), int(y)) for y in RNG.integers(0, 2, 50)]
    write(tmp_path, "mine.tsv", header + "".join(line(*row) for row in rows))
    result = evaluate(Hashed(), tasks=f"{kind}:{tmp_path / 'mine.tsv'}")["tasks"][f"{kind}:{tmp_path / 'mine.tsv'}"]
    if kind == "scored":
        expected = scipy.stats.spearmanr([cos(a, b) for a, b, _ in rows], [y for *_, y in rows]).statistic
    elif kind == "paraphrase":
        expected = sklearn.metrics.average_precision_score([y for *_, y in rows], [cos(a, b) for a, b, _ in rows])
    else:
        groups = [[(cos(f"query {q}", b), y) for a, b, y in rows if len(a) % 5 == q] for q in range(5)]
        groups = [g for g in groups if any(y for _, y in g)]
        expected = np.mean(
            [sklearn.metrics.average_precision_score([y for _, y in g], [s for s, _ in g]) for g in groups]
        )
    assert result["score"] == pytest.approx(100 * expected, abs=1e-4)


def test_a_triplet_is_right_where_the_positive_is_the_nearer_one(tmp_path):
    rows = [(sentence(), sentence(), sentence()) for _ in range(60)]
    lines = "".join("\t".join(row) + "\n" for row in [("anchor", "positive", "negative"), *rows])
    write(tmp_path, "mine.tsv", lines)
    result = evaluate(Hashed(), tasks=[f"triplets:{tmp_path / 'mine.tsv'}"])["tasks"][
        f"triplets:{tmp_path / 'mine.tsv'}"
    ]
    right = [cos(a, p) > cos(a, n) for a, p, n in rows]
    assert 0 < sum(right) < 60
    assert result["score"] == pytest.approx(100 * np.mean(right))
    assert result["alignment"] == pytest.approx(np.mean([2 - 2 * cos(a, p) for a, p, _ in rows]), abs=1e-5)


def test_every_negative_of_a_triplet_counts_and_without_any_it_is_the_next_positive():
    several = [(sentence(), sentence(), tuple(sentence() for _ in range(num))) for num in RNG.integers(1, 4, 40)]
    score = score_triplets([Triplet(*row) for row in several], Hashed().encode)["score"]
    right = [all(cos(a, p) > cos(a, n) for n in negatives) for a, p, negatives in several]
    assert score == pytest.approx(100 * np.mean(right))
    score = score_triplets([Triplet(a, p) for a, p, _ in several], Hashed().encode)["score"]
    following = [p for _, p, _ in several[1:] + several[:1]]
    right = [cos(a, p) > cos(a, n) for (a, p, _), n in zip(several, following, strict=True)]
    assert score == pytest.approx(100 * np.mean(right))


def test_a_triplet_without_negatives_is_not_compared_with_its_own_anchors_other_positive():
    rows = [Triplet("one", "one"), Triplet("one", "one"), Triplet("two", "two"), Triplet("two", "two")]
    assert score_triplets(rows, Hashed().encode)["score"] == 100
    with pytest.raises(InputError, match="another anchor"):
        score_triplets(rows[:2], Hashed().encode)


def test_a_negative_that_is_no_text_is_refused(tmp_path):
    write(tmp_path, "mine.jsonl", json.dumps({"anchor": "a", "positive": "b", "negative": ["c", 3]}) + "\n")
    with pytest.raises(RowError, match=r"mine\.jsonl:1: 'negative' is int, not text"):
        evaluate(Hashed(), tasks=[f"triplets:{tmp_path / 'mine.jsonl'}"])


def test_an_own_file_of_texts_in_classes_is_cross_validated(tmp_path):
    lines = "".join(json.dumps({"text": t, "label": ("no", "yes")[y]}) + "\n" for t, y in LABELLED)
    write(tmp_path, "mine.jsonl", lines)
    result = evaluate(Hashed(), tasks=[f"classes:{tmp_path / 'mine.jsonl'}"])
    assert next(iter(result["tasks"].values()))["score"] > 90


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("scored:{}/a.tsv", "sentence1\tsentence2\tscore\na\tb\tx\n", r"a\.tsv:2: 'score' is 'x', not a number"),
        ("scored:{}/a.tsv", "sentence1\tsentence2\na\tb\n", r"a\.tsv:2: has no column for 'score'. It has: sen"),
        ("scored:{}/a.tsv", "sentence1\tsentence2\tscore\na\tb\n", r"a\.tsv:2: has 2 columns"),
        ("paraphrase:{}/a.tsv", "sentence1\tsentence2\tlabel\na\tb\t2\n", r"a\.tsv:2: 'label' is '2', not 0 or 1"),
        ("scored:{}/a.tsv", "sentence1\tsentence2\tscore\na\tb\t1\nc\td\t1\n", "two different gold scores"),
        ("paraphrase:{}/a.tsv", "sentence1\tsentence2\tlabel\na\tb\t1\n", "need both labels"),
    ],
)
def test_a_bad_own_file_is_named(tmp_path, name, content, message):
    write(tmp_path, "a.tsv", content)
    with pytest.raises(InputError, match=message):
        evaluate(Hashed(), tasks=name.format(tmp_path))


def test_a_score_out_of_range_an_uneven_file_and_a_bad_label_are_named_by_line(tmp_path):
    folder = "senteval/STS/STSBenchmark"
    write(tmp_path, f"{folder}/sts-dev.csv", "x\tx\tx\t0\t3\ta\tb\nx\tx\tx\t1\t9\tc\td\n")
    with pytest.raises(RowError, match=r"sts-dev\.csv:2: the score 9 is not in 0 to 5"):
        run(tmp_path, "STSB-dev")
    write(tmp_path, f"{folder}/sts-dev.csv", "x\tx\tx\t0\t3\ta\tb\nx\tx\tx\t1\t4\tc\n")
    with pytest.raises(RowError, match=r"sts-dev\.csv:2: has 6 columns"):
        run(tmp_path, "STSB-dev")
    write_sts(tmp_path, 13, {name: pair_rows(3) for name in ("FNWN", "headlines", "OnWN")})
    write(tmp_path, "senteval/STS/STS13-en-test/STS.gs.OnWN.txt", "1\n2\n")
    with pytest.raises(RowError, match="2 scores for 3 pairs"):
        run(tmp_path, "STS13")
    write(tmp_path, "senteval/TREC/train_5500.label", "WHAT:x Why ?\n")
    with pytest.raises(RowError, match=r"train_5500\.label:1.*'WHAT:x'"):
        run(tmp_path, "TREC")


def test_vectors_that_are_not_finite_name_the_task_and_the_text(tmp_path):
    class Broken(Hashed):
        def encode(self, sentences):
            return np.where(np.arange(len(sentences))[:, None] == 3, np.nan, super().encode(sentences))

    write(tmp_path, "zh_stsb/sts-b-test.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in pair_rows(9)))
    with pytest.raises(InputError, match=r"ZH-STSB.*is not finite"):
        evaluate(Broken(), tasks="ZH-STSB", data=tmp_path)


def test_empty_files_are_errors_and_not_tracebacks(tmp_path):
    write(tmp_path, "zh_stsb/sts-b-test.txt", "")
    write(tmp_path, "biosses/pairs.tsv", "")
    write(tmp_path, "mine.jsonl", '{"sentence1": "a", "sentence2": "b", "score": [1]}\n')
    write(tmp_path, "askubuntu/text_tokenized.txt", "1\ta\tb\n2\tc\td\n")
    write(tmp_path, "askubuntu/test.txt", "1\t\t2\t0.5\n")
    for task in ("AskUbuntu", "ZH-STSB", "BIOSSES", f"scored:{tmp_path / 'mine.jsonl'}"):
        with pytest.raises(InputError):
            run(tmp_path, task)


def test_rows_of_qqp_that_are_cut_off_are_skipped_and_counted(tmp_path):
    write_glue(tmp_path)
    file = tmp_path / "glue/QQP/train.tsv"
    file.write_text(file.read_text() + "99\t1\t2\tonly one question\n")
    result = run(tmp_path, "glue-QQP")["tasks"]["glue-QQP"]
    assert (result["num_train"], result["num_skipped"]) == (600, 1)


def test_a_later_error_loses_no_score(tmp_path):
    write(tmp_path, "zh_stsb/sts-b-test.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in pair_rows(9)))
    write(tmp_path, "biosses/pairs.tsv", "broken\n")
    with pytest.raises(InputError):
        run(tmp_path, "ZH-STSB", "BIOSSES", out=tmp_path / "out")
    assert list(json.loads((tmp_path / "out" / "results.json").read_text())["tasks"]) == ["ZH-STSB"]


def test_a_broken_or_unwritable_cache_is_no_error(tmp_path, tiny, caplog):
    write(tmp_path, "zh_stsb/sts-b-test.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in pair_rows(9)))
    first = evaluate(tiny(), tasks="ZH-STSB", data=tmp_path, cache=tmp_path / "cache")
    next((tmp_path / "cache").iterdir()).write_bytes(b"")
    assert evaluate(tiny(), tasks="ZH-STSB", data=tmp_path, cache=tmp_path / "cache")["tasks"] == first["tasks"]
    assert "made again" in caplog.text
    (tmp_path / "file").touch()
    assert evaluate(tiny(), tasks="ZH-STSB", data=tmp_path, cache=tmp_path / "file" / "x")["tasks"] == first["tasks"]
    assert "not kept" in caplog.text


def test_geometry_is_measured_on_any_scored_pairs(tmp_path):
    rows = [(sentence(), sentence(), gold) for gold in (0.5, 4.2, 5.0)]
    write(tmp_path, "a.tsv", "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{g}\n" for a, b, g in rows))
    result = next(iter(evaluate(Hashed(), tasks=f"geometry:{tmp_path / 'a.tsv'}")["tasks"].values()))
    expected = np.mean([2 - 2 * cos(a, b) for a, b, gold in rows if gold > 4])
    assert result["alignment"] == pytest.approx(expected, abs=1e-5)


def test_a_label_in_test_that_is_not_in_train_names_the_task(tmp_path):
    write(
        tmp_path,
        "senteval/TREC/train_5500.label",
        "".join(f"HUM:x {sentence()}\nLOC:y {sentence()}\n" for _ in range(20)),
    )
    write(tmp_path, "senteval/TREC/TREC_10.label", "NUM:z How many ?\n")
    with pytest.raises(InputError, match=r"TREC: .*5"):
        run(tmp_path, "TREC")


def test_a_model_that_gives_nan_names_the_task_and_the_layer(tmp_path, tiny):
    encoder = tiny()
    with torch.no_grad():
        encoder.tower.backbone.encoder.block[1].layer[0].SelfAttention.q.weight[0, 0] = float("nan")
    write(tmp_path, "zh_stsb/sts-b-test.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in pair_rows(9)))
    with pytest.raises(NonFiniteError, match=r"ZH-STSB: .*block\.1\.layer\.0\.SelfAttention\.q"):
        evaluate(encoder, tasks="ZH-STSB", data=tmp_path)


def test_a_text_that_several_tasks_share_is_embedded_once(tmp_path):
    rows = pair_rows(20)
    stsb = "".join(f"x\tx\tx\t{i}\t{g}\t{a}\t{b}\n" for i, (a, b, g) in enumerate(rows))
    write(tmp_path, "senteval/STS/STSBenchmark/sts-dev.csv", stsb)
    write(tmp_path, "zh_stsb/sts-b-dev.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in rows))
    encoder = Hashed()
    evaluate(encoder, tasks=["STSB-dev", "ZH-STSB-dev"], data=tmp_path)
    assert len(encoder.seen) == len(set(encoder.seen)) == len({text for a, b, _ in rows for text in (a, b)})


def test_a_second_evaluation_embeds_nothing(tmp_path, tiny, monkeypatch):
    from tercet import Encoder

    write(tmp_path, "zh_stsb/sts-b-test.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in pair_rows(9)))
    first = evaluate(tiny(), tasks="ZH-STSB", data=tmp_path, cache=tmp_path / "cache", out=tmp_path / "out")
    monkeypatch.setattr(Encoder, "embed", None)
    again = evaluate(tiny(), tasks="ZH-STSB", data=tmp_path, cache=tmp_path / "cache")
    assert again["tasks"] == first["tasks"]
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == first.to_dict()
    with pytest.raises(TypeError):
        evaluate(tiny(seed=2), tasks="ZH-STSB", data=tmp_path, cache=tmp_path / "cache")


def test_results_of_another_model_or_of_more_tasks_are_not_lost(tmp_path, tiny):
    for name in ("sts-b-test", "sts-b-dev"):
        write(tmp_path, f"zh_stsb/{name}.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in pair_rows(9)))

    def go(encoder, tasks="ZH-STSB,ZH-STSB-dev", **more):
        return evaluate(encoder, tasks=tasks, data=tmp_path, cache=False, out=tmp_path / "out", **more)

    first = go(tiny(), name="mine")
    file = tmp_path / "out" / "results.json"
    assert go(tiny(), name="mine").to_dict() == first.to_dict()
    before = file.read_bytes()
    with pytest.raises(OutputError, match=r"holds results of mine that would be lost \(ZH-STSB [-.\d]+, ZH-STSB-dev"):
        go(tiny(seed=2))
    with pytest.raises(OutputError, match=r"would be lost \(ZH-STSB-dev [-.\d]+\)"):
        go(tiny(), tasks="ZH-STSB")
    assert file.read_bytes() == before
    assert json.loads(file.read_text())["model"] == "mine"
    assert go(tiny(), tasks="ZH-STSB", force=True).to_dict() == json.loads(file.read_text())


def test_results_say_what_can_change_a_score(tmp_path, tiny):
    write(tmp_path, "zh_stsb/sts-b-test.txt", "".join(f"{a}\t{b}\t{g}\n" for a, b, g in pair_rows(9)))
    results = evaluate(tiny(prompt="gense"), tasks="ZH-STSB", data=tmp_path, name="mine", precision="fast")
    assert results["model"] == "mine"
    assert results["num_parameters"] > 1e5
    assert results["settings"]["prompt"].startswith("[X] Question")
    assert (results["settings"]["precision"], results["settings"]["seed"]) == ("fast", 1111)
    assert {"tercet", "torch", "transformers", "numpy", "python"} <= set(results["versions"])
    digest = hashlib.sha256((tmp_path / "zh_stsb/sts-b-test.txt").read_bytes()).hexdigest()
    assert results["tasks"]["ZH-STSB"]["data"] == {"zh_stsb/sts-b-test.txt": digest}


def test_an_unknown_task_is_refused_with_near_matches(tmp_path, monkeypatch):
    with pytest.raises(SettingError, match="STS12"):
        choose_tasks("STS122")
    with pytest.raises(SettingError, match="scored"):
        choose_tasks("score:file.tsv")
    monkeypatch.delenv("TERCET_DATA", raising=False)
    with pytest.raises(SettingError, match="--data"):
        evaluate(Hashed(), tasks="sts")
    with pytest.raises(InputError, match="no such folder"):
        evaluate(Hashed(), tasks="sts", data=tmp_path / "nothing")


def test_speed_is_measured_for_every_length_batch_and_precision(tiny, monkeypatch):
    cells = {(c["words"], c["batch"]) for c in evaluate(Hashed(), tasks="speed")["tasks"]["speed"]["grid"]}
    assert cells == {(words, batch) for words in (8, 32, 128) for batch in (None, 1, 8, 32)}
    monkeypatch.setattr("tercet.evaluation.tasks.speed._OWN_BATCHES_WORDS", 64)
    result = evaluate(tiny(), tasks="speed", lengths=[8])["tasks"]["speed"]
    assert {(c["batch"], c["precision"]) for c in result["grid"]} >= {
        (b, p) for b in (None, 1, 8, 32) for p in ("exact", "fast")
    }
    assert all(0 < cell["min"] <= cell["sentences_per_s"] <= cell["max"] for cell in result["grid"])
    assert result["num_parameters"] > 1e5
    assert all(0.05 < cell["peak_rss_gb"] <= result["peak_rss_gb"] for cell in result["grid"])
    assert all(cell["tokens"] > 8 and "peak_gpu_gb" not in cell for cell in result["grid"])


def test_speed_is_measured_with_the_batches_that_are_asked_for_and_with_the_encoders_own(monkeypatch):
    sizes = []

    class Counting(Hashed):
        def encode(self, sentences):
            sizes.append(len(set(sentences)))
            return super().encode(sentences)

    result = evaluate(Counting(), tasks="speed", lengths=[8])["tasks"]["speed"]
    assert set(sizes) == {1, 8, 32, 256}  # 256: all at once, and no two sentences the same
    assert result["score"] == next(c["sentences_per_s"] for c in result["grid"] if c["batch"] is None)
    sizes.clear()
    result = evaluate(Counting(), tasks="speed", lengths=[127], batches=[1024])["tasks"]["speed"]
    assert set(sizes) == {1024, 2048 // 127} and {cell["words"] for cell in result["grid"]} == {127}
    with pytest.raises(SettingError, match=r"batches \[0\]: has a number below one"):
        evaluate(Counting(), tasks="speed", batches=[0])


def test_the_grid_of_speed_says_how_many_tokens_were_read_and_the_peak_of_a_gpu_s_memory(tiny, monkeypatch):
    counted = []

    def reset():
        counted.append("reset")

    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.reset_peak_memory_stats", reset)
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda: 3_000_000_000)
    monkeypatch.setattr("tercet.vectors.store.VectorStore.on_gpu", True)
    encoder, embedded = tiny(), []
    monkeypatch.setattr(Encoder, "embed", lambda self, texts, **options: embedded.append(texts))
    grid = evaluate(encoder, tasks="speed", lengths=[4], batches=[1024], cache=False)["tasks"]["speed"]["grid"]
    texts = max(embedded, key=len)
    assert len(texts) == 1024
    lengths = [len(ids) for ids in encoder.tokens.tokenizer(texts)["input_ids"]]
    assert {cell["tokens"] for cell in grid if cell["batch"] == 1024} == {sum(lengths) / 1024}
    assert {cell["peak_gpu_gb"] for cell in grid} == {3.0} and len(counted) == 4 * len(grid)


def test_contestants_take_turns_and_every_other_round_goes_backwards():
    called = []
    contestants = {name: lambda name=name: called.append(name) or len(called) for name in "abc"}
    rounds = list(in_turns(contestants, num_rounds=2))
    assert called == ["a", "b", "c", "c", "b", "a"]
    assert rounds == [{"a": 1, "b": 2, "c": 3}, {"a": 6, "b": 5, "c": 4}]


def test_a_ratio_is_the_median_of_the_ratios_of_each_round_and_not_of_the_medians():
    assert ratio([1.0, 8.0, 9.0], [1.0, 2.0, 9.0]) == {"median": 1.0, "min": 1.0, "max": 4.0, "rounds": 3}
    assert spread([3.0, 1.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "rounds": 2}


def test_the_peak_of_memory_is_of_each_measurement_alone():
    forget_peak()
    before = peak_rss_gb()
    block = np.ones(30_000_000)
    with_block = peak_rss_gb()
    del block
    forget_peak()
    assert with_block - before > 0.2
    assert peak_rss_gb() < with_block - 0.2
