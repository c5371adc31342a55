"""`adapt`: what it learns from and what it holds out, what it measures, which encoder it keeps, what it refuses."""

import csv
import json
import re
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import spearmanr

from tercet import Encoder, InputError, ModelError, OutputError, SettingError
from tercet.adapt import adapt
from tercet.adapt.findings import Findings, Measure, own_tasks
from tercet.adapt.neighbours import compare, spread
from tercet.adapt.page import document_of, verdict
from tercet.adapt.plan import MODEL, Plan, Request
from tercet.cli import DEFAULT_MODEL
from tercet.pipeline import run_recipe
from tercet.recipe import read_recipe
from tercet.report.html import to_html
from tercet.report.markdown import to_markdown
from tercet.rows.sources import open_rows
from tercet.rows.words import as_words
from tercet.synthesis import corpus

ROOT = Path(__file__).parents[2]
WORDS = "a man plays the guitar on stage two dogs run through deep snow stocks dropped monday".split()
SMALL = [
    "stages.contrast.steps=4",
    "stages.contrast.batch=8",
    "stages.contrast.learning_rate=0.01",
    "stages.contrast.precision=exact",
    "stages.synthesize.num_samples=2",
]


class StandIn:
    """Says of every sentence something that follows and something that does not; of some it is not sure."""

    sure = 0.95
    num_generated = 0

    def generate(self, texts, *, relation, sampling, num_samples, seed):
        StandIn.num_generated += len(texts)
        mark = "so" if relation == "entailment" else "never"
        return [[f"{mark} {k} {' '.join(text.split()[:0:-1])}" for k in range(num_samples)] for text in texts]

    def score(self, premises, hypotheses):
        sure = [self.sure if len(premise) % 4 else 0.7 for premise in premises]
        pairs = zip(sure, hypotheses, strict=True)
        return np.array([p if text.startswith("so") else 1 - p for p, text in pairs], np.float32)

    def fingerprint(self):
        return f"stand-in {self.sure}"


def lines(num):
    rng = np.random.default_rng(0)
    return [" ".join([f"{i}", *rng.choice(WORDS, 9)]) for i in range(num)]


@pytest.fixture(scope="module")
def world(tmp_path_factory, tiny):
    """A start, sentences (one too short, one twice), and one adaptation of the one to the others."""
    folder = tmp_path_factory.mktemp("adapt")
    tiny("t5").save(folder / "start")
    sentences = lines(60)
    (folder / "in.txt").write_text("\n".join([*sentences, "too short", sentences[0]]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_load", lambda settings: StandIn())
        patch.delenv("TERCET_DATA", raising=False)
        patch.chdir(folder)

        def run(out, *changes, source="in.txt", model="start", **more):
            return adapt(source, out, model=model, synthesizer="start", changes=[*SMALL, *changes], **more)

        yield folder, run, run("out")


@pytest.fixture
def folder(world):
    return world[0]


@pytest.fixture
def run(world):
    return world[1]


@pytest.fixture
def adapted(world):
    return world[2]


def triplets(folder, out="out"):
    text = (folder / out / "run" / "stages" / "01-synthesize" / "triplets.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def encoders(folder, out="out"):
    trained = folder / out / "run" / "stages" / "02-contrast" / "encoder"
    return [Encoder.load(path, device="cpu") for path in (folder / "start", trained)]


def cosines(encoder, a, b):
    x, y = (encoder.embed(texts).astype(np.float64) for texts in (a, b))
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


def held_out(folder, out="out"):
    stages = yaml.safe_load((folder / out / "run" / "recipe.yaml").read_text())["stages"]
    contrast = stages[1]["contrast"]
    path = folder / out / "run" / "stages" / "01-synthesize" / "triplets.jsonl"
    parts = contrast["rows"]["sources"], contrast["evaluate"]["rows"]["sources"]
    return [[*open_rows({**sources[0], "path": str(path)}, kind="triplets")] for sources in parts]


# What is learned from, and what is held out.


def test_no_sentence_is_both_learned_from_and_held_out(folder, adapted):
    trained, held = ({row.anchor for row in rows} for rows in held_out(folder))
    assert trained and held and not trained & held
    assert trained | held == {row["anchor"] for row in triplets(folder)}
    assert sum(map(len, held_out(folder))) == len(triplets(folder)) == adapted.findings.audit["num_triplets"]


def test_the_counts_of_all_rules_add_up_to_what_came_in(folder, adapted):
    audit = adapted.findings.audit
    assert audit["sentences"]["sources"]["in.txt"]["num_read"] == 62
    dropped = {name: rule["num"] for name, rule in audit["sentences"]["dropped"].items()}
    assert dropped == {"short": 1, "long": 0, "duplicate": 1}
    unsure = sum(len(line) % 4 == 0 for line in lines(60))
    assert audit["filters"]["dropped"]["alpha"]["num"] == 2 * unsure
    assert audit["num_triplets"] == 2 * (60 - unsure)


def test_the_recipe_in_the_folder_can_be_trained_again_and_gives_the_same_encoder(folder, adapted):
    recipe = read_recipe(folder / "out" / "run" / "recipe.yaml")
    again = run_recipe(recipe, folder / "again")
    names = ["model.safetensors", "tokenizer.json"]
    assert [(again.encoder / n).read_bytes() for n in names] == [(adapted.encoder / n).read_bytes() for n in names]


def test_small_piles_get_more_candidates_and_more_of_them_is_held_out(folder):
    request = Request(sentences=("in.txt",), model=str(folder / "start"), synthesizer="x")

    def num_samples(num):
        return request.content(num_sentences=num)["stages"][0]["synthesize"]["num_samples"]

    assert [num_samples(num) for num in (300, 1_900, 5_000, None)] == [4, 2, 1, 1]
    for num_anchors, num_held_out, steps in ((10, 3, 40), (250, 50, 40), (2_500, 250, round(3 * 4_500 / 64))):
        rows = [{"anchor": f"anchor {i}", "positive": f"yes {i} {k}"} for i in range(num_anchors) for k in range(2)]
        path = folder / f"{num_anchors}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        contrast = request.content(anchors=[row["anchor"] for row in rows])["stages"][1]["contrast"]
        sources = contrast["rows"], contrast["evaluate"]["rows"]
        trained, held_out = ([*open_rows({**source, "path": path}, kind="triplets")] for source in sources)
        assert len(held_out) == 2 * num_held_out == 2 * len({row.anchor for row in held_out})
        assert len(trained) == len(rows) - len(held_out)
        assert contrast["steps"] == steps


def test_a_t5_that_is_no_sentence_encoder_yet_is_read_out_as_in_gense(synthesizer_folder):
    request = Request(sentences=("x",), model=str(synthesizer_folder("t5")), synthesizer="x")
    assert Plan.of(request).contrast.encoder == {"readout": "encdec-first", "prompt": "gense", "max_tokens": 64}
    changed = Request(sentences=("x",), model=request.model, synthesizer="x", changes=("encoder.readout=enc-mean",))
    assert Plan.of(changed).contrast.encoder["readout"] == "enc-mean"


def test_evaluation_texts_are_kept_out_of_the_triplets(folder, run):
    leaked = triplets(folder)[0]["anchor"]
    (folder / "leaky.tsv").write_text(f"sentence1\tsentence2\tscore\n{leaked}\tx\t1\na b\tc d\t0\ne f\tg h\t2\n")
    run("leaky", evals=["leaky.tsv"])
    assert leaked not in {row["anchor"] for row in triplets(folder, "leaky")}
    assert len(triplets(folder, "leaky")) == len(triplets(folder)) - 2


# What is measured.


def test_synthetic_measures_are_those_of_the_held_out_triplets(folder, adapted):
    rows = held_out(folder)[1]
    anchors, positives, negatives = zip(*((row.anchor, row.positive, row.negatives[0]) for row in rows), strict=True)
    accuracy, alignment, uniformity = adapted.findings.of("synthetic")
    for encoder, side in zip(encoders(folder), ("before", "after"), strict=True):
        right = cosines(encoder, anchors, positives) > cosines(encoder, anchors, negatives)
        assert getattr(accuracy, side) == pytest.approx(100 * right.mean())
        distances = 2 - 2 * cosines(encoder, anchors, positives)
        assert getattr(alignment, side) == pytest.approx(distances.mean(), abs=1e-5)
        vectors = encoder.embed([*anchors, *positives], normalize=True).astype(np.float64)
        squares = ((vectors[:, None] - vectors[None]) ** 2).sum(-1)[~np.eye(len(vectors), dtype=bool)]
        assert getattr(uniformity, side) == pytest.approx(np.log(np.exp(-2 * squares).mean()), abs=1e-4)
    assert {measure.name for measure in adapted.findings.of("synthetic")} == {"held-out synthetic triplets"}


def test_neighbours_are_the_nearest_sentences_of_the_corpus(folder, adapted):
    pool = lines(60)
    assert adapted.findings.num_pool == 60
    assert len({example.query for example in adapted.findings.examples}) == 5
    for example in adapted.findings.examples:
        others = [text for text in pool if text != example.query]
        lists = []
        for encoder, found in zip(encoders(folder), (example.before, example.after), strict=True):
            scores = cosines(encoder, [example.query] * len(others), others)
            lists.append({others[i] for i in np.argsort(-scores)[:3]})
            assert {neighbour.text for neighbour in found} == lists[-1]
            assert [neighbour.score for neighbour in found] == pytest.approx(sorted(scores)[:-4:-1], abs=1e-5)
        moved = {n.text for n in (*example.before, *example.after) if n.moved}
        assert moved == lists[0] ^ lists[1]


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


def test_general_sentences_are_those_of_the_package_or_sts_where_it_is_at_hand(folder, run, adapted):
    (measure,) = adapted.findings.of("general")
    with (ROOT / "src" / "tercet" / "general.tsv").open(newline="") as stream:
        rows = [*csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]
    columns = [[row[name] for row in rows] for name in ("anchor", "positive", "negative")]
    for encoder, value in zip(encoders(folder), (measure.before, measure.after), strict=True):
        right = cosines(encoder, columns[0], columns[1]) > cosines(encoder, columns[0], columns[2])
        assert value == pytest.approx(100 * right.mean())
    pairs = [(a, b, i % 6) for i, (a, b) in enumerate(zip(lines(12), lines(24)[12:], strict=True))]
    target = folder / "data" / "senteval" / "STS" / "STSBenchmark"
    target.mkdir(parents=True)
    rows = ["\t".join(["g", "f", "y", "id", str(score), a, b]) for a, b, score in pairs]
    (target / "sts-dev.csv").write_text("\n".join(rows) + "\n")
    (measure,) = run("with-data", data=folder / "data").findings.of("general")
    assert measure.name == "STS-B dev"
    for encoder, value in zip(encoders(folder, "with-data"), (measure.before, measure.after), strict=True):
        expected = spearmanr(cosines(encoder, *([p[i] for p in pairs] for i in (0, 1))), [p[2] for p in pairs])
        assert value == pytest.approx(100 * expected.statistic)


# Which encoder is kept.


def like(folder, name, encoder):
    """Write pairs that are scored as an encoder scores them."""
    rng = np.random.default_rng(2)
    a, b = ([" ".join(rng.choice(WORDS, 6)) for _ in range(30)] for _ in range(2))
    rows = zip(a, b, cosines(encoder, a, b), strict=True)
    text = "".join(f"{x}\t{y}\t{score:.9f}\n" for x, y, score in rows)
    (folder / name).write_text("sentence1\tsentence2\tscore\n" + text)
    return name


def test_the_start_is_kept_where_the_result_is_worse_on_ones_own_rows(folder, run, adapted):
    file = like(folder, "like-start.tsv", encoders(folder)[0])
    kept = run("kept", evals=[f"scored:{file}"])
    (own,) = kept.findings.of("own")
    assert own.before > 99.9 and own.after < 99
    text = lines(3)
    assert np.array_equal(Encoder.load(kept.encoder).embed(text), Encoder.load(folder / "start").embed(text))
    for name in ("report.md", "report.html"):
        assert "Kept: the start." in (kept.out / name).read_text()


def test_the_result_is_kept_where_it_is_better_on_ones_own_rows(folder, run, adapted):
    file = like(folder, "like-result.tsv", encoders(folder)[1])
    kept = run("better", evals=[file])
    assert kept.findings.own_gain > 0
    text = lines(3)
    assert np.array_equal(Encoder.load(kept.encoder).embed(text), Encoder.load(adapted.encoder).embed(text))
    assert "Kept: the adapted encoder" in (kept.out / "report.md").read_text()


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
        "samples": [],
        "examples": [],
    }
    return Findings(audit=audit, measures=[*measures], num_pool=0, **given, **more)


def measure(group, before, after, **more):
    return Measure(group, group, "accuracy", 10, before, after, **more)


@pytest.mark.parametrize(
    ("own", "keeps_start"), [([], False), ([(50, 49)], True), ([(50, 50)], False), ([(50, 49), (50, 52)], False)]
)
def test_the_mean_over_ones_own_rows_decides(own, keeps_start):
    findings = findings_with(*(measure("own", *pair) for pair in own), measure("synthetic", 1, 2))
    assert findings.keeps_start is keeps_start
    assert verdict(findings).startswith("Kept: the start" if keeps_start else "Kept: the adapted encoder")


def test_what_was_forgotten_and_what_is_not_real_is_said():
    good = findings_with(measure("own", 1, 2), measure("synthetic", 1, 2), measure("general", 80, 78.5))
    assert good.warnings == []
    bad = findings_with(measure("synthetic", 2, 2), measure("general", 80, 77))
    text = to_markdown(document_of(bad, {}), "")
    assert "3.0 points less on general" in text
    assert "Nothing was gained" in text
    assert "synthetic" in bad.warnings[-1] and "--eval" in bad.warnings[-1]


# The report.


def test_the_report_has_every_number_and_escapes_what_users_write(adapted):
    html, markdown = ((adapted.out / name).read_text() for name in ("report.html", "report.md"))
    for text in (html, markdown):
        for found in adapted.findings.measures:
            digits = 3 if found.lower_is_better else 1
            assert f"{found.before:.{digits}f}" in text and f"{found.after:.{digits}f}" in text
        for example in adapted.findings.examples:
            assert example.query in text and all(n.text in text for n in (*example.before, *example.after))
        assert sum(text.count(f"follows ({s['positive_true']:.2f})") for s in adapted.findings.samples[:1]) == 10
        assert "tercet adapt in.txt --out out --model start" in text
        for part in ("synthesis", "training", "measuring"):
            assert part in text
    bad = findings_with(measure("synthetic", 1, 2), measure("general", 1, 1))
    bad = Findings(**{**vars(bad), "samples": [{"anchor": "<script>*x*", "positive": "<b>", "positive_true": 1.0}]})
    assert "<script>" not in to_html(document_of(bad, {}))
    assert "\\*x\\*" in to_markdown(document_of(bad, {}), "")


def test_adapt_json_has_all_numbers(adapted):
    found = json.loads((adapted.out / "adapt.json").read_text())["findings"]
    assert [m["after"] for m in found["measures"]] == [m.after for m in adapted.findings.measures]
    assert len(found["samples"]) == 10 and found["keeps_start"] is False


def test_the_command_in_the_report_is_one_that_asks_for_the_same():
    request = Request(("my file.txt",), "x", own=("scored:a.tsv",), split=True, column="b", seed=3, changes=("a=b c",))
    words = shlex.split(request.command(Path("out dir"), "my data"))
    assert words[:5] == ["tercet", "adapt", "my file.txt", "--out", "out dir"]
    options = Counter(word for word in words if word.startswith("--"))
    assert options == Counter("--out --model --synthesizer --column --data --split --seed --eval --set".split())
    assert words[-3:] == ["scored:a.tsv", "--set", "a=b c"]


def test_called_again_it_generates_nothing_and_writes_the_same(folder, run, adapted):
    before = {name: (adapted.out / name).read_bytes() for name in ("report.md", "adapt.json")}
    StandIn.num_generated = 0
    again = run("out")
    assert StandIn.num_generated == 0
    assert again.findings == adapted.findings
    assert {name: again.times_s[name] for name in ("synthesis", "training")} == {
        name: adapted.times_s[name] for name in ("synthesis", "training")
    }
    record = json.loads((again.out / "adapt.json").read_text())
    assert json.loads(before["adapt.json"])["findings"] == record["findings"]
    reports = before["report.md"].decode(), (again.out / "report.md").read_text()
    assert len({re.sub(r"\d+ s\b", "TIME", report) for report in reports}) == 1


def test_other_settings_make_only_what_they_touch_anew(folder, run):
    first = run("changing")
    log = (first.out / "run" / "metrics.jsonl").read_bytes()
    file = folder / "mine.tsv"
    file.write_text("anchor\tpositive\tnegative\nnot there one\tnot there two\tnot there three\n")
    StandIn.num_generated = 0
    second = run("changing", evals=[f"triplets:{file}"])
    assert StandIn.num_generated == 0
    assert (second.out / "run" / "metrics.jsonl").read_bytes() == log
    assert second.times_s["synthesis"] >= first.times_s["synthesis"]
    with pytest.raises(InputError, match="triplets were accepted"):
        run("changing", "stages.synthesize.min_hypothesis_words=50")
    assert not (first.out / "encoder").exists() and not (first.out / "report.md").exists()
    assert "findings" not in json.loads((first.out / "adapt.json").read_text())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("stages.contrast.rows.share=[0,1]", "Make them disjoint"),
        ("stages.contrast.rows.share=1.0", r"their shares: \[FROM, TO\]"),
        ("stages.contrast.evaluate.rows=in.txt", r"their shares: \[FROM, TO\]"),
        ("stages.contrast.evaluate=null", r"their shares: \[FROM, TO\]"),
    ],
)
def test_nothing_may_be_learned_from_what_is_held_out(run, change, message):
    with pytest.raises(SettingError, match=message):
        run("refused", change)


def test_scores_lie_a_fifth_of_the_steps_apart_however_many_are_asked_for():
    request = Request(("in.txt",), model="random:t5-tiny", synthesizer="x", changes=("stages.contrast.steps=200",))
    assert Plan.of(request).contrast.evaluate.every == 40


# What is refused.


def test_what_cannot_be_used_is_said_before_anything_is_generated(folder, run):
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("too short\nand so is this\n")
    (folder / "topics.tsv").write_text("name\tcolour\nx\ty\n")
    (folder / "one-score.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t1\n")
    cases = [
        (InputError, r"empty\.txt: has no rows", {"source": "empty.txt"}),
        (InputError, r"short\.txt: none of 2 sentences .+'short' dropped 2.+--split", {"source": "short.txt"}),
        (InputError, r"no\.tsv: no such file", {"evals": ["scored:no.tsv"]}),
        (InputError, r"no\.tsv: no such file", {"evals": ["no.tsv"]}),
        (InputError, r"topics\.tsv: has the columns name, colour.+\(rerank\)", {"evals": ["topics.tsv"]}),
        (InputError, r"topics\.tsv:2: has no 'sentence1'", {"evals": ["scored:topics.tsv"]}),
        (InputError, r"scored:one-score\.tsv: .+two different gold scores", {"evals": ["one-score.tsv"]}),
        (SettingError, r"--eval geometry:x\.tsv: .+ scored, ", {"evals": ["geometry:x.tsv"]}),
        (ModelError, r"\./nothing: no such folder", {"model": "./nothing"}),
        (InputError, r"nowhere: no such folder", {"data": "nowhere"}),
    ]
    StandIn.num_generated = 0
    for error, message, more in cases:
        with pytest.raises(error, match=message):
            run("refused", **more)
    with pytest.raises(SettingError, match=r"alhpa: there is no such setting"):
        run("refused", "stages.synthesize.alhpa=1")
    assert StandIn.num_generated == 0


def test_too_few_triplets_are_an_error_that_names_the_rule_and_a_remedy(folder, run, monkeypatch):
    (folder / "few.txt").write_text("\n".join(lines(8)) + "\n")
    with pytest.raises(InputError, match=r"few\.txt: \d+ of 16 triplets .+ 20 are needed.+ Give more sentences"):
        run("few", source="few.txt")
    monkeypatch.setattr(StandIn, "sure", 0.6)
    with pytest.raises(InputError, match=r"in\.txt: 0 of 120 .+'alpha' dropped 120\. .+alpha=0\.7"):
        run("unsure")


def test_a_folder_that_holds_something_else_is_refused(folder, run, tiny):
    (folder / "other").mkdir()
    (folder / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="other: holds other files than a run"):
        run("other")
    with pytest.raises(OutputError, match=r"out.run: holds another run"):
        run(Path("out") / "run")
    tiny("t5", readout="enc-first").save(folder / "start2")
    with pytest.raises(OutputError, match=r"out: was made with model start\. Name a new folder"):
        run("out", model="start2")
    (folder / "more.txt").write_text("\n".join(lines(70)) + "\n")
    with pytest.raises(OutputError, match=r"out: was made with sentences"):
        run("out", source="more.txt")
    sentences = (folder / "in.txt").read_text()
    (folder / "in.txt").write_text("\n".join(lines(70)) + "\n")
    with pytest.raises(OutputError, match=r"out: was made with other sentences"):
        run("out")
    (folder / "in.txt").write_text(sentences)


def test_several_processes_are_refused(run, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match=r"one process.+recipe\.yaml"):
        run("several")


def test_the_kind_of_a_file_is_told_by_its_columns(tmp_path):
    columns = {
        "scored": "sentence1 sentence2 score",
        "paraphrase": "sentence1 sentence2 label",
        "rerank": "query candidate label",
        "labelled": "text label",
        "triplets": "anchor positive negative",
    }
    for kind, names in columns.items():
        path = tmp_path / f"{kind}.tsv"
        path.write_text("\t".join(names.split()) + "\n" + "\t".join(["1"] * len(names.split())) + "\n")
        assert own_tasks([str(path)]) == (f"{kind}:{path}",) == own_tasks([f"{kind}:{path}"])


# Texts that come with it.


def test_general_sentences_are_150_different_triplets():
    with (ROOT / "src" / "tercet" / "general.tsv").open(newline="") as stream:
        rows = [*csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]
    assert rows[0] == ["anchor", "positive", "negative"]
    assert len(rows) == 151 and {len(row) for row in rows} == {3}
    texts = [as_words(text) for row in rows[1:] for text in row]
    assert len(set(texts)) == len(texts)


def test_the_example_has_300_different_sentences_of_6_to_25_words():
    texts = (ROOT / "examples" / "kitchen.txt").read_text().splitlines()
    assert len(texts) == 300 == len({as_words(text) for text in texts})
    assert all(6 <= len(text.split()) <= 25 for text in texts)


def test_the_command_has_the_defaults_of_the_function():
    assert DEFAULT_MODEL == MODEL
