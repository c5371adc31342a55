"""`adapt`: what it learns from and what it holds out, what it measures, which encoder it keeps, what it refuses."""

import csv
import inspect
import json
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from tercet import Encoder, InputError, ModelError, OutputError, SettingError
from tercet.adaptation import judges
from tercet.adaptation.adapt import adapt
from tercet.adaptation.balance import balance
from tercet.adaptation.judges import JUDGED_BY, Judges
from tercet.evaluation.evaluate import evaluate
from tercet.storage.hashing import text_place
from tercet.synthesis import corpus
from tercet.synthesis.views import views_of
from tercet.training import pipeline
from tercet.training.pipeline import run_recipe
from tercet.training.recipe import read_recipe
from tercet.training.stages import synthesize
from tercet.training.stages.kinds import KINDS
from tercet.training.stages.reweight import reweight
from tercet.vectors.store import VectorStore

ROOT = Path(__file__).parents[2]
WORDS = "a man plays the guitar on stage two dogs run through deep snow stocks dropped monday".split()
SMALL = [
    "stages.contrast.steps=4",
    "stages.contrast.batch=8",
    "stages.contrast.learning_rate=0.01",
    "stages.contrast.precision=exact",
]
NUM_GENERAL = 12  # of the 150 general sentences, because tiny models are slow with texts of many lengths
GENSE = {"plan": "gense", "changes": ["stages.triplets.num_samples=2"]}
MIXTURE = {"plan": "mixture", "changes": [*GENSE["changes"], "stages.titles.finder=null"]}


class StandIn:
    """Says of every sentence something that follows and something that does not; of some it is not sure."""

    sure = 0.95
    num_generated = 0

    def generate(self, texts, *, relation, sampling, num_samples, seed):
        StandIn.num_generated += len(texts)
        if relation == "title":
            return [[" ".join(text.split()[:3])] for text in texts]
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
        general = judges.general_rows()[:NUM_GENERAL]
        patch.setattr(judges, "general_rows", lambda: general)
        for module in ("balance", "findings"):  # random models know nothing that they could forget
            patch.setattr(import_module(f"tercet.adaptation.{module}"), "MOST_LOST", 100)
        patch.delenv("TERCET_DATA", raising=False)
        patch.chdir(folder)

        def run(out, *own, source="in.txt", plan="spans", model="start", changes=(), **more):
            changes = [*SMALL, *changes, *own]
            return adapt(source, out, plan=plan, model=model, synthesizer="start", changes=changes, **more)

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


def learned(folder, name, out="out"):
    """Return the rows of a stage."""
    (path,) = (folder / out / "run" / "stages").glob(f"*-{name}/*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def encoders(folder, out="out"):
    (trained,) = (folder / out / "run" / "stages").glob("*-contrast/encoder")
    return [Encoder.load(path, device="cpu") for path in (folder / "start", trained)]


def cosines(encoder, a, b):
    x, y = (encoder.embed(texts).astype(np.float64) for texts in (a, b))
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


def held_out_texts(num=60):
    """Return a fifth of the texts, by the place of each."""
    places = sorted(text_place(line) for line in lines(num))
    return [line for line in lines(num) if text_place(line) >= 1 - 0.25], places


# What is learned from, and what is held out.


def test_spans_are_of_texts_that_are_not_held_out(folder, adapted):
    held, _ = held_out_texts()
    spans = learned(folder, "spans")
    texts = {line: 0 for line in lines(60)}
    for row in spans:
        words = row["anchor"].split()
        (text,) = [t for t in texts if row["positive"].split()[0] in t.split()[:1] or words[0] == t.split()[0]]
        assert sorted([*words, *row["positive"].split()]) == sorted(text.split())
        texts[text] += 1
    assert held and all(texts[text] == 0 for text in held)
    assert all(texts[text] for text in texts if text not in held)
    assert [(part.name, part.num) for part in adapted.findings.learned] == [("spans", len(spans))]


def test_the_mixture_learns_from_spans_titles_and_triplets_of_the_same_texts(folder, run):
    made = run("mixture", **MIXTURE)
    held, _ = held_out_texts()
    assert [part.name for part in made.findings.learned] == ["spans", "titles", "triplets"]
    assert [part.num for part in made.findings.learned] == [
        len(learned(folder, name, "mixture")) for name in ("spans", "titles", "triplets")
    ]
    written = {row["positive"] for row in learned(folder, "titles", "mixture")}
    written |= {row["anchor"] for row in learned(folder, "triplets", "mixture")}
    assert written and written <= {*lines(60)} - {*held}


def test_titles_are_learned_from_by_default_and_judged_by_all_views(folder, run):
    assert inspect.signature(adapt).parameters["plan"].default == "auto"
    made = run("titles", plan="auto", changes=["stages.titles.finder=null"], source=lines(200))
    assert [part.name for part in made.findings.learned] == ["titles"]
    assert [measure.name for measure in made.findings.of("held-out")] == [
        "held-out texts, by some words in a row",
        "held-out texts, by their rarest words",
    ]  # none has two sentences
    domain = made.findings.domain
    assert domain.gain == pytest.approx(np.mean([measure.gain for measure in made.findings.of("held-out")]))


def test_texts_of_several_sentences_teach_weights_of_directions_after_titles(folder, run):
    texts = [f"{line}. {' '.join(line.split()[::-1]).capitalize()}." for line in lines(200)]
    made = run("weighted", plan="auto", source=texts, changes=["stages.titles.finder=null"])
    assert [part.name for part in made.findings.learned] == ["titles", "spans"]
    assert [measure.name for measure in made.findings.of("held-out")] == ["held-out texts, by their sentences"]
    trained, weighted = (
        Encoder.load(path, device="cpu")
        for name in ("contrast", "reweight")
        for path in (folder / "weighted" / "run" / "stages").glob(f"*-{name}/encoder")
    )
    spans = learned(folder, "spans", "weighted")
    anchors, positives = (trained.embed([row[side] for row in spans]) for side in ("anchor", "positive"))
    reweight(trained, anchors - positives, shrink=2.0)
    assert np.abs(trained.embed(texts) - weighted.embed(texts)).max() < 1e-3  # `auto` may compute the pairs in bf16


def test_the_plan_of_gense_learns_from_triplets_alone_and_their_counts_add_up(folder, run):
    made = run("gense", **GENSE)
    (part,) = made.findings.learned
    assert part.sentences["sources"]["in.txt"]["num_read"] <= 62
    unsure = sum(len(row) % 4 == 0 for row in lines(60) if row not in held_out_texts()[0])
    assert part.filters["dropped"]["alpha"]["num"] == 2 * unsure
    assert part.num == len(learned(folder, "triplets", "gense")) == 2 * (60 - len(held_out_texts()[0]) - unsure)


def test_the_recipe_in_the_folder_can_be_trained_again_and_gives_the_same_encoder(folder, adapted):
    recipe = read_recipe(folder / "out" / "run" / "recipe.yaml")
    again = run_recipe(recipe, folder / "again")
    names = ["model.safetensors", "tokenizer.json"]
    trained = folder / "out" / "run" / "encoder"
    assert [(again.encoder / n).read_bytes() for n in names] == [(trained / n).read_bytes() for n in names]


def test_evaluation_texts_are_kept_out_of_the_triplets(folder, run):
    leaked = next(line for line in lines(60) if len(line) % 4 and line not in held_out_texts()[0])
    (folder / "leaky.tsv").write_text(f"sentence1\tsentence2\tscore\n{leaked}\tx\t1\na b\tc d\t0\ne f\tg h\t2\n")
    run("leaky", evals=["leaky.tsv"], **GENSE)
    assert leaked not in {row["anchor"] for row in learned(folder, "triplets", "leaky")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("stages.contrast.rows=in.txt", "are what the other stages make"),
        ("stages.spans.sentences=in.txt", "held out to judge by"),
        ('stages=[{"views": {"sentences": "in.txt"}}]', "stages: are those of the plan"),
    ],
)
def test_nothing_can_be_learned_from_what_is_held_out(run, change, message):
    with pytest.raises(SettingError, match=message):
        run("refused", change)


# What is measured.


def test_held_out_texts_are_looked_for_by_a_view_that_nothing_was_learned_from(folder, adapted):
    assert adapted.findings.of("held-out") == [] and adapted.findings.domain is None  # texts of one sentence
    many = [f"{first}. {second}." for first, second in zip(lines(60), lines(60)[1:], strict=False)]
    on_many = Judges((), None, held_out=many, others=lines(60), views=JUDGED_BY["spans"], seed=0)
    encoder = encoders(folder)[0]
    ((group, _, result),) = on_many.on_domain(VectorStore(encoder))
    pairs = [[*views_of([text], "sentence", num_views=8)] for text in many]
    assert sum(map(len, pairs)) > 1.9 * len(many)  # both sentences ask
    wanted = []
    for number, found in enumerate(pairs):
        others = [*(each[0][1] for place, each in enumerate(pairs) if place != number), *lines(60)]
        ranks = []
        for asks, finds in found:
            own, *rest = encoder.similarity([asks], [finds, *others])[0]
            ranks.append(1 + sum(rest > own + 1e-6))
        wanted.append(np.mean([1 / rank for rank in ranks]))
    assert group == "held-out" and result["num"] == len(many)
    assert result["score"] == pytest.approx(100 * np.mean(wanted), abs=0.5)


def test_neighbours_are_the_nearest_sentences_of_the_corpus(folder, adapted):
    held, _ = held_out_texts()
    pool = [line for line in lines(60) if line not in held]
    assert adapted.findings.num_pool == len(pool) and adapted.findings.share == 1
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
    measure = adapted.findings.general
    with (ROOT / "src" / "tercet" / "adaptation" / "general.tsv").open(newline="") as stream:
        rows = [*csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)][:NUM_GENERAL]
    for encoder, value in zip(encoders(folder), (measure.before, measure.after), strict=True):
        texts, paraphrases = (encoder.embed([row[name] for row in rows]) for name in ("text", "paraphrase"))
        scores = texts @ paraphrases.T
        places = range(NUM_GENERAL)
        found = [scores[i].argmax() == i for i in places] + [scores[:, i].argmax() == i for i in places]
        assert value == pytest.approx(100 * np.mean(found))
    pairs = [(a, b, i % 6) for i, (a, b) in enumerate(zip(lines(12), lines(24)[12:], strict=True))]
    target = folder / "data" / "senteval" / "STS" / "STSBenchmark"
    target.mkdir(parents=True)
    rows = ["\t".join(["g", "f", "y", "id", str(score), a, b]) for a, b, score in pairs]
    (target / "sts-dev.csv").write_text("\n".join(rows) + "\n")
    measure = run("with-data", data=folder / "data").findings.general
    assert measure.name == "STS-B dev"
    expected = spearmanr(cosines(encoders(folder)[0], *([p[i] for p in pairs] for i in (0, 1))), [p[2] for p in pairs])
    assert measure.before == pytest.approx(100 * expected.statistic)


# Which encoder is kept.


def like(folder, name, encoder):
    """Write pairs that are scored as an encoder scores them."""
    rng = np.random.default_rng(2)
    a, b = ([" ".join(rng.choice(WORDS, 6)) for _ in range(30)] for _ in range(2))
    rows = zip(a, b, cosines(encoder, a, b), strict=True)
    text = "".join(f"{x}\t{y}\t{score:.9f}\n" for x, y, score in rows)
    (folder / name).write_text("sentence1\tsentence2\tscore\n" + text)
    return name


def test_the_start_is_kept_where_the_result_is_worse_and_the_user_may_say_otherwise(folder, run, adapted):
    file = like(folder, "like-start.tsv", encoders(folder)[0])
    kept = run("kept", evals=[f"scored:{file}"])
    (own,) = kept.findings.of("own")
    assert own.before > 99.9 and own.after < 99 and own.high < 0 and kept.findings.keeps_start
    text = lines(3)
    assert np.array_equal(Encoder.load(kept.encoder).embed(text), Encoder.load(folder / "start").embed(text))
    for name in ("report.md", "report.html"):
        assert "Kept: the start." in (kept.out / name).read_text()
    log = (kept.out / "run" / "metrics.jsonl").read_bytes()
    again = run("kept", evals=[f"scored:{file}"])
    assert again.findings == kept.findings and (kept.out / "run" / "metrics.jsonl").read_bytes() == log
    anyway = run("kept", evals=[f"scored:{file}"], keep_anyway=True)
    assert not anyway.findings.keeps_start and "--keep-anyway" in anyway.findings.warnings[0]
    assert np.array_equal(Encoder.load(anyway.encoder).embed(text), encoders(folder, "kept")[1].embed(text))


def test_the_result_is_kept_where_it_is_better_on_ones_own_rows(folder, run, adapted):
    file = like(folder, "like-result.tsv", encoders(folder)[1])
    kept = run("better", evals=[file])
    assert kept.findings.domain.low > 0 and kept.findings.is_better
    text = lines(3)
    assert np.array_equal(Encoder.load(kept.encoder).embed(text), encoders(folder, "better")[1].embed(text))
    assert "Kept: the adapted encoder" in (kept.out / "report.md").read_text()


def test_every_kind_of_file_judges(folder, run):
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
    assert found.findings.domain.gain == pytest.approx(np.mean([measure.gain for measure in own]))
    assert all(measure.low <= measure.gain <= measure.high for measure in own)


def test_an_encoder_that_forgot_too_much_is_moved_back_towards_its_start(tiny, monkeypatch):
    monkeypatch.setattr("tercet.adaptation.balance.MOST_LOST", 0.5)
    start, result = tiny("t5"), tiny("t5")
    with torch.no_grad():
        for parameter in result.tower.parameters():
            parameter += 1
    before = {name: tensor.clone() for name, tensor in start.tower.named_parameters()}

    def general(encoder):
        name, tensor = next(iter(encoder.tower.named_parameters()))
        return 80 - (tensor - before[name]).mean().item()

    assert balance(start, result, general) == 0.5  # 1.0 and 0.75 lose more than half a point
    for name, tensor in result.tower.named_parameters():
        torch.testing.assert_close(tensor.detach(), before[name] + 0.5)


def test_a_projection_that_the_start_lacks_is_moved_back_to_nothing(tiny, monkeypatch):
    monkeypatch.setattr("tercet.adaptation.balance.MOST_LOST", 0.5)
    start, result = tiny("t5"), tiny("t5")
    reweight(result, np.random.default_rng(0).normal(size=(200, result.dim)).astype(np.float32), shrink=0.1)
    after = result.head.dense_layers[-1].linear.weight.detach().clone()
    same = torch.eye(result.dim)

    def general(encoder):
        layers = encoder.head.dense_layers
        share = (layers[-1].linear.weight - same).norm() / (after - same).norm() if layers else torch.zeros(())
        return 80 - 0.9 * share.item()

    assert balance(start, result, general) == 0.5
    torch.testing.assert_close(result.head.dense_layers[-1].linear.weight.detach(), (after + same) / 2)


# The report.


def test_the_report_has_every_number(adapted):
    html, markdown = ((adapted.out / name).read_text() for name in ("report.html", "report.md"))
    for text in (html, markdown):
        for found in adapted.findings.measures:
            assert all(part in text for part in found.texts())
        for example in adapted.findings.examples:
            assert example.query in text and all(n.text in text for n in (*example.before, *example.after))
        for sample in adapted.findings.learned[0].samples:
            assert sample["anchor"] in text and sample["positive"] in text
        assert "tercet adapt in.txt --out out --plan spans --model start" in text
        for part in ("making rows", "learning", "judging"):
            assert part in text


def test_adapt_json_has_all_numbers(adapted):
    found = json.loads((adapted.out / "adapt.json").read_text())["findings"]
    assert [m["after"] for m in found["measures"]] == [m.after for m in adapted.findings.measures]
    assert len(found["learned"][0]["samples"]) == 10 and found["keeps_start"] is True


def test_called_again_it_generates_nothing_and_writes_the_same(folder, run, adapted):
    before = {name: (adapted.out / name).read_bytes() for name in ("report.md", "adapt.json")}
    StandIn.num_generated = 0
    again = run("out")
    assert StandIn.num_generated == 0
    assert again.findings == adapted.findings
    assert {name: again.times_s[name] for name in ("making rows", "learning")} == {
        name: adapted.times_s[name] for name in ("making rows", "learning")
    }
    record = json.loads((again.out / "adapt.json").read_text())
    assert json.loads(before["adapt.json"])["findings"] == record["findings"]
    reports = before["report.md"].decode(), (again.out / "report.md").read_text()
    assert len({re.sub(r"\d+ s\b", "TIME", report) for report in reports}) == 1


def test_other_settings_make_only_what_they_touch_anew(folder, run):
    first = run("changing", **GENSE)
    log = (first.out / "run" / "metrics.jsonl").read_bytes()
    file = folder / "mine.tsv"
    file.write_text("anchor\tpositive\tnegative\nnot there one\tnot there two\tnot there three\n")
    StandIn.num_generated = 0
    second = run("changing", evals=[f"triplets:{file}"], **GENSE)
    assert StandIn.num_generated == 0
    assert (second.out / "run" / "metrics.jsonl").read_bytes() == log
    with pytest.raises(InputError, match="triplets were accepted"):
        run("changing", "stages.triplets.min_hypothesis_words=50", **GENSE)
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
    for work in (synthesize._Synthesize, KINDS["contrast"].work):
        monkeypatch.setattr(work, "run", slow(work.run))
    costs = iter([10, 20])
    with pytest.raises(KeyboardInterrupt):
        run("timed", **GENSE)
    (folder / "timed.tsv").write_text("anchor\tpositive\tnegative\nnot there one\tnot there two\tnot there three\n")
    attempts = [
        ([5], {}, (10, 25)),
        ([7], {"steps": 3}, (10, 7)),
        ([2], {"steps": 3, "evals": ["timed.tsv"]}, (2, 7)),  # filtered anew, with the same triplets
    ]
    for parts, asked, wanted in attempts:
        costs = iter(parts)
        changes = [f"stages.contrast.steps={asked.pop('steps')}"] if "steps" in asked else []
        times_s = run("timed", *changes, **asked, **GENSE).times_s
        assert (times_s["making rows"], times_s["learning"]) == wanted
        assert not [*(folder / "timed" / "run" / "stages").glob("*/time.json")] and next(costs, None) is None


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
        (InputError, r"short\.txt: none of [12] sentences .+'short' dropped [12].+--split", {"source": "short.txt"}),
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
        run("refused", "stages.spans.alhpa=1")
    assert StandIn.num_generated == 0


def test_too_few_triplets_are_an_error_that_names_the_rule_and_a_remedy(folder, run, monkeypatch):
    (folder / "few.txt").write_text("\n".join(lines(8)) + "\n")
    with pytest.raises(InputError, match=r"few\.txt: \d+ of \d+ triplets .+ 20 are needed.+ Give more sentences"):
        run("few", source="few.txt", **GENSE)
    monkeypatch.setattr(StandIn, "sure", 0.6)
    with pytest.raises(InputError, match=r"in\.txt: 0 of (\d+) .+'alpha' dropped \1\. .+alpha=0\.5"):
        run("unsure", **GENSE)


def test_a_folder_that_holds_something_else_is_refused(folder, run, tiny):
    (folder / "other").mkdir()
    (folder / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="other: holds other files than a run"):
        run("other")
    with pytest.raises(OutputError, match=r"out.run: holds other files than a run"):
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
