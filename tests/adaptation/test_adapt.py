"""`adapt`: what it learns from and what it holds out, what it measures, which encoder it keeps, what it refuses."""

import csv
import json
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import spearmanr

from tercet import Encoder, InputError, ModelError, OutputError, SettingError
from tercet.adaptation.adapt import adapt
from tercet.data.feeding.sources import open_rows
from tercet.evaluation.evaluate import evaluate
from tercet.storage.hashing import text_place
from tercet.synthesis import corpus
from tercet.training import pipeline
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.stages.kinds import KINDS

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
    """Return the rows that were learned from, and those that were scored on, as the stage has noted them."""
    stages = folder / out / "run" / "stages"
    inputs = json.loads((stages / "02-contrast" / "stage.json").read_text())["inputs"]
    path = str(stages / "01-synthesize" / "triplets.jsonl")
    shares = [inputs[part]["sources"][0]["share"] for part in ("rows", "dev")]
    return [[*open_rows({"path": path, "share": share}, kind="triplets")] for share in shares]


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


def test_general_sentences_are_those_of_the_package_or_sts_where_it_is_at_hand(folder, run, adapted):
    (measure,) = adapted.findings.of("general")
    with (ROOT / "src" / "tercet" / "adaptation" / "general.tsv").open(newline="") as stream:
        rows = [*csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]
    for encoder, value in zip(encoders(folder), (measure.before, measure.after), strict=True):
        texts, paraphrases = (encoder.embed([row[name] for row in rows]) for name in ("text", "paraphrase"))
        scores = texts @ paraphrases.T
        found = [scores[i].argmax() == i for i in range(150)] + [scores[:, i].argmax() == i for i in range(150)]
        assert value == pytest.approx(100 * np.mean(found))
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


def test_where_the_start_was_kept_it_is_kept_again_and_nothing_is_computed_anew(folder, run, adapted):
    file = like(folder, "like-start.tsv", encoders(folder)[0])
    kept = run("kept-again", evals=[f"scored:{file}"])
    names = ["model.safetensors", "tokenizer.json", "modules.json"]
    before = [(kept.encoder / name).read_bytes() for name in names]
    log = (kept.out / "run" / "metrics.jsonl").read_bytes()
    StandIn.num_generated = 0
    again = run("kept-again", evals=[f"scored:{file}"])
    assert again.findings == kept.findings and again.findings.keeps_start
    assert StandIn.num_generated == 0 and (kept.out / "run" / "metrics.jsonl").read_bytes() == log
    assert [(again.encoder / name).read_bytes() for name in names] == before
    text = lines(3)
    assert np.array_equal(Encoder.load(again.encoder).embed(text), Encoder.load(folder / "start").embed(text))


def test_every_kind_of_file_decides_which_encoder_is_kept(folder, run):
    rng = np.random.default_rng(3)
    a, b, c = ([" ".join(rng.choice(WORDS, 6)) for _ in range(40)] for _ in range(3))
    label = [str(i % 2) for i in range(40)]
    files = {
        "scored": {"sentence1": a, "sentence2": b, "score": [str(i) for i in range(40)]},
        "paraphrase": {"sentence1": a, "sentence2": b, "label": label},
        "rerank": {"query": [a[i // 4] for i in range(40)], "candidate": b, "label": label},
        "classes": {"text": a, "label": label},
        "triplets": {"anchor": a, "positive": b, "negative": c},
    }
    for kind, columns in files.items():
        rows = ["\t".join(columns), *("\t".join(row) for row in zip(*columns.values(), strict=True))]
        (folder / f"{kind}.tsv").write_text("\n".join(rows) + "\n")
    tasks = [f"{kind}:{kind}.tsv" for kind in files]
    found = run("kinds", evals=[f"{kind}.tsv" for kind in files])
    own = found.findings.of("own")
    assert [measure.name for measure in own] == tasks
    for encoder, side in zip(encoders(folder, "kinds"), ("before", "after"), strict=True):
        wanted = evaluate(encoder, tasks=tasks)["tasks"]
        assert [getattr(measure, side) for measure in own] == [wanted[task]["score"] for task in tasks]
    assert found.findings.keeps_start == (np.mean([measure.gain for measure in own]) < 0)


def test_the_result_is_kept_where_it_is_better_on_ones_own_rows(folder, run, adapted):
    file = like(folder, "like-result.tsv", encoders(folder)[1])
    kept = run("better", evals=[file])
    assert kept.findings.own_gain > 0
    text = lines(3)
    assert np.array_equal(Encoder.load(kept.encoder).embed(text), Encoder.load(adapted.encoder).embed(text))
    assert "Kept: the adapted encoder" in (kept.out / "report.md").read_text()


# The report.


def test_the_report_has_every_number(adapted):
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


def test_adapt_json_has_all_numbers(adapted):
    found = json.loads((adapted.out / "adapt.json").read_text())["findings"]
    assert [m["after"] for m in found["measures"]] == [m.after for m in adapted.findings.measures]
    assert len(found["samples"]) == 10 and found["keeps_start"] is False


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
    with pytest.raises(InputError, match="triplets were accepted"):
        run("changing", "stages.synthesize.min_hypothesis_words=50")
    assert not (first.out / "encoder").exists() and not (first.out / "report.md").exists()
    assert "findings" not in json.loads((first.out / "adapt.json").read_text())


def test_the_times_of_all_attempts_with_the_same_settings_are_added_up(folder, run, monkeypatch):
    now, costs = [0.0], iter([])

    def slow(work):
        def take(self):
            now[0] += (cost := next(costs))
            if cost == 20:
                raise KeyboardInterrupt
            return work(self)

        return take

    monkeypatch.setattr(pipeline, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for name in ("synthesize", "contrast"):
        kind = KINDS[name].work
        monkeypatch.setattr(kind, "run", slow(kind.run))
    costs = iter([10, 20])
    with pytest.raises(KeyboardInterrupt):
        run("timed")
    (folder / "timed.tsv").write_text("anchor\tpositive\tnegative\nnot there one\tnot there two\tnot there three\n")
    attempts = [
        ([5], {}, (10, 25)),
        ([7], {"steps": 3}, (10, 7)),
        ([2], {"steps": 3, "evals": ["timed.tsv"]}, (2, 7)),  # filtered anew, with the same triplets
    ]
    for parts, asked, wanted in attempts:
        costs = iter(parts)
        changes = [f"stages.contrast.steps={asked.pop('steps')}"] if "steps" in asked else []
        times_s = run("timed", *changes, **asked).times_s
        assert (times_s["synthesis"], times_s["training"]) == wanted
        assert not [*(folder / "timed" / "run" / "stages").glob("*/time.json")] and next(costs, None) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("stages.contrast.rows=in.txt", "leave rows as they are"),
        ('stages.contrast.rows=["@synthesize", "in.txt"]', "leave rows as they are"),
        ("stages.contrast.rows.share=0.5", r"Say from where to where: \[0, 0\.5\]"),
        ("stages.contrast.evaluate.rows=in.txt", "task, rows and held_out are three things"),
        ("stages.contrast.evaluate=null", r"held out \(evaluate\.held_out\)"),
        ('stages=[{"synthesize": {"sentences": "in.txt", "model": "start"}}]', "stages: are two"),
    ],
)
def test_the_report_needs_triplets_that_are_held_out(run, change, message):
    StandIn.num_generated = 0
    with pytest.raises(SettingError, match=message):
        run("refused", change)
    assert StandIn.num_generated == 0


def test_nothing_is_learned_from_what_is_held_out_however_much_that_is(folder, run):
    changes = ["rows.share=[0.1,0.9]", "evaluate.held_out=0.5"]
    run("half", *(f"stages.contrast.{change}" for change in changes))
    trained, held = ({row.anchor for row in rows} for rows in held_out(folder, "half"))
    assert len(held) == round((len(trained) + len(held)) / 2) and not trained & held
    assert trained | held == {
        row["anchor"] for row in triplets(folder, "half") if 0.1 <= text_place(row["anchor"]) < 0.9
    }


def test_the_recipe_is_made_once_and_run_once(run, monkeypatch):
    calls = Counter()

    def counted(function):
        def call(*args, **more):
            calls[function.__name__] += 1
            return function(*args, **more)

        return call

    for place in ("plan.make_recipe", "adapt.run_recipe"):
        module, _, name = place.partition(".")
        module = import_module(f"tercet.adaptation.{module}")
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
    run("once")
    assert calls == {"make_recipe": 1, "run_recipe": 1}


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
        (InputError, r"topics\.tsv:2: has no column for 'a' and 'b' and 'score'", {"evals": ["scored:topics.tsv"]}),
        (InputError, r"scored:one-score\.tsv: .+two different gold scores", {"evals": ["one-score.tsv"]}),
        (SettingError, r"--eval geometry:x\.tsv: .+ scored, ", {"evals": ["geometry:x.tsv"]}),
        (ModelError, r"\./nothing: no such folder", {"model": "./nothing"}),
        (InputError, r"nowhere: no such folder", {"data": "nowhere"}),
        (SettingError, r"hub:a/b: .+ --max-sentences", {"source": "hub:a/b"}),
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
    with pytest.raises(InputError, match=r"in\.txt: 0 of 120 .+'alpha' dropped 120\. .+alpha=0\.5"):
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
