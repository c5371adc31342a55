"""A synthetic corpus: sentences in, triplets out, on a stand-in for the model whose answers can be computed here."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from tercet import InputError, ModelError, OutputError, SettingError
from tercet.data.feeding.sources import open_rows
from tercet.storage.settings import checked
from tercet.storage.shards import Shards
from tercet.synthesis import corpus
from tercet.synthesis.candidates import Candidate
from tercet.synthesis.comparison import compare
from tercet.synthesis.corpus import make_corpus, refilter, synthesize
from tercet.synthesis.filters import Filter
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import FilterSettings, SampleRule, SentenceSettings, SynthesisSettings


def number_of(*parts):
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")


class StandIn:
    """Writes texts and gives probabilities that follow from hashes; counts how much it was asked."""

    def __init__(self, *, fail_after=None):
        self.num_generated, self.fail_after = 0, fail_after

    def generate(self, texts, *, relation, sampling, num_samples, seed):
        if self.fail_after is not None and self.num_generated >= self.fail_after:
            raise KeyboardInterrupt
        self.num_generated += len(texts)
        return [
            [f"{relation} of it has number {number_of(text, seed, k, sampling.top_p)}" for k in range(num_samples)]
            for text in texts
        ]

    def score(self, premises, hypotheses):
        assert all(hypotheses)
        return np.array([self.probability(*pair) for pair in zip(premises, hypotheses, strict=True)], np.float32)

    def probability(self, premise, hypothesis):
        sure = 1 - (number_of(premise, hypothesis) % 1000) / 4000
        return 1 - sure if hypothesis.startswith("contradiction") else sure

    def fingerprint(self):
        return "stand-in"


def sentence(i):
    return f"the {i}th sentence has exactly nine words in all"


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{sentence(i)}\n" for i in range(50)))
    return path


def settings(path, **more):
    return checked(SynthesisSettings, {"sentences": path, "model": "x", "shard_sentences": 8, **more})


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def triplets(folder):
    return [json.loads(line) for line in (folder / "triplets.jsonl").read_text().splitlines()]


def candidates(folder):
    return [
        row for file in sorted((folder / "candidates").glob("*.parquet")) for row in pq.read_table(file).to_pylist()
    ]


@pytest.mark.parametrize(
    ("rule", "num_samples"),
    [({"candidates": 200, "most": 4}, 4), ({"candidates": 200}, 4), ({"candidates": 200, "most": 3}, 3),
     ({"candidates": 80}, 2), ({"candidates": 20}, 1)],
)  # fmt: skip
def test_as_many_candidates_are_made_as_give_the_wanted_number_in_all(lines, tmp_path, rule, num_samples):
    make_corpus(settings(lines, num_samples=rule), tmp_path / "rule", model=StandIn())
    make_corpus(settings(lines, num_samples=num_samples), tmp_path / "number", model=StandIn())
    found, wanted = (
        {p.name: p.read_bytes() for p in (tmp_path / name / "candidates").iterdir()} for name in ("rule", "number")
    )
    assert found == wanted


def test_sentences_that_are_not_counted_get_one_candidate_each():
    assert SampleRule(candidates=2_000, most=4).num_samples(None) == 1


def test_every_sentence_has_candidates_with_the_models_probabilities(lines, tmp_path):
    model = StandIn()
    make_corpus(settings(lines, num_samples=3), tmp_path / "out", model=model)
    rows = candidates(tmp_path / "out")
    assert [(row["sentence"], row["sample"]) for row in rows] == [(i, k) for i in range(50) for k in range(3)]
    assert [row["anchor"] for row in rows] == [sentence(i) for i in range(50) for _ in range(3)]
    for row in rows:
        assert row["positive"].startswith("entailment")
        assert row["negative"].startswith("contradiction")
        for kind in ("positive", "negative"):
            assert row[f"{kind}_true"] == pytest.approx(model.probability(row["anchor"], row[kind]))
    assert len({row["positive"] for row in rows}) == 150, "two shards or samples had the same draws"


def test_the_accepted_ones_are_rows_with_their_probabilities(lines, tmp_path):
    audit = make_corpus(settings(lines), tmp_path / "out", model=StandIn())
    rows = triplets(tmp_path / "out")
    good = [row for row in candidates(tmp_path / "out") if row["positive_true"] >= 0.9 and row["negative_true"] <= 0.1]
    assert 0 < len(good) < 50
    assert rows == [{key: row[key] for key in rows[0]} for row in good]
    assert set(rows[0]) == {"anchor", "positive", "negative", "positive_true", "negative_true"}
    read = [*open_rows(tmp_path / "out" / "triplets.jsonl", kind="triplets")]
    assert [(row.anchor, row.positive, *row.negatives) for row in read] == [
        (row["anchor"], row["positive"], row["negative"]) for row in good
    ]
    assert audit == json.loads((tmp_path / "out" / "audit.json").read_text())
    assert audit["num_triplets"] == len(good)


def test_the_seed_and_the_settings_of_sampling_change_what_is_drawn(lines, tmp_path):
    for name, more in {"a": {}, "b": {}, "c": {"seed": 1}, "d": {"top_p": 0.5}}.items():
        make_corpus(
            settings(lines, **{key: value for key, value in more.items() if key != "seed"}),
            tmp_path / name,
            model=StandIn(),
            seed=more.get("seed", 0),
        )
    drawn = {name: {row["positive"] for row in candidates(tmp_path / name)} for name in "abcd"}
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert drawn["a"].isdisjoint(drawn["c"])
    assert drawn["a"].isdisjoint(drawn["d"])


def test_a_run_that_was_cut_off_goes_on_with_the_same_bytes_and_makes_no_shard_twice(lines, tmp_path):
    whole = StandIn()
    make_corpus(settings(lines), tmp_path / "whole", model=whole)
    with pytest.raises(KeyboardInterrupt):
        make_corpus(settings(lines), tmp_path / "cut", model=StandIn(fail_after=50))
    done = len([*(tmp_path / "cut" / "candidates").glob("*.parquet")])
    assert 0 < done < 7
    (tmp_path / "cut" / "candidates" / ".000004.parquet.abcdefgh.tercet").write_bytes(b"half of it")
    (tmp_path / "cut" / ".triplets.jsonl.abcdefgh.tercet").write_bytes(b"half of it")
    (tmp_path / "cut" / ".somebodys.settings").write_bytes(b"of value")
    rest = StandIn()
    make_corpus(settings(lines), tmp_path / "cut", model=rest)
    assert rest.num_generated == whole.num_generated - 2 * 8 * done
    assert (tmp_path / "cut" / ".somebodys.settings").read_bytes() == b"of value"
    (tmp_path / "cut" / ".somebodys.settings").unlink()
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_the_bar_tells_how_many_are_accepted_and_finished_shards_take_no_time(lines, tmp_path, monkeypatch, capsys):
    now_s = 7.0

    class Slow(StandIn):
        def generate(self, texts, **more):
            nonlocal now_s
            now_s += 2
            return super().generate(texts, **more)

    class SlowToSkip(Shards):
        def is_done(self, number):
            nonlocal now_s
            now_s += 1000 if super().is_done(number) else 0
            return super().is_done(number)

    with pytest.raises(KeyboardInterrupt):
        make_corpus(settings(lines), tmp_path / "out", model=StandIn(fail_after=48))
    monkeypatch.setattr(corpus, "Shards", SlowToSkip)
    monkeypatch.setattr(corpus, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr("tercet.storage.progress.EVERY_S", 0.001)
    make_corpus(settings(lines), tmp_path / "out", model=Slow(), progress=True)
    new = {sentence(i) for i in range(3 * 8, 50)}  # behind three shards that were finished
    num = sum(row["anchor"] in new for row in triplets(tmp_path / "out"))
    assert 0 < num < 26
    assert "50 of 50 " in (shown := capsys.readouterr().err)
    assert f" {num} accepted ({num / 26:.0%}, {num / 16:.2f}/s)" in shown  # in four shards of four seconds


def test_a_run_that_was_killed_while_it_wrote_its_plan_starts_again(lines, tmp_path):
    make_corpus(settings(lines), tmp_path / "whole", model=StandIn())
    [marker] = (path for path in (tmp_path / "whole" / "candidates").glob("*.json") if path.name != "made.json")
    (tmp_path / "killed" / "candidates").mkdir(parents=True)
    (tmp_path / "killed" / "candidates" / f".{marker.name}.abcdefgh.tercet").write_bytes(b"half of it")
    make_corpus(settings(lines), tmp_path / "killed", model=StandIn())
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_a_finished_run_is_not_made_again(lines, tmp_path):
    make_corpus(settings(lines), tmp_path / "out", model=StandIn())
    before, model = content(tmp_path / "out"), StandIn()
    make_corpus(settings(lines), tmp_path / "out", model=model)
    assert model.num_generated == 0
    assert content(tmp_path / "out") == before


def test_candidates_of_other_settings_are_never_thrown_away(lines, tmp_path):
    make_corpus(settings(lines), tmp_path / "out", model=StandIn())
    before = content(tmp_path / "out")
    with pytest.raises(OutputError, match="other inputs or settings"):
        make_corpus(settings(lines, top_p=0.5), tmp_path / "out", model=StandIn())
    assert content(tmp_path / "out") == before


def test_a_folder_for_all_candidates_keeps_those_of_each_setting(lines, tmp_path, caplog):
    kept, told = tmp_path / "kept", []
    for top_p in (0.9, 0.5, 0.9):
        caplog.clear()
        audit = make_corpus(settings(lines, top_p=top_p), tmp_path / "out", candidates=kept, model=StandIn())
        assert len([*(tmp_path / "out" / audit["candidates"]).glob("*.parquet")]) == 7
        told.append("they are kept" in caplog.text)
    assert told == [False, True, False]
    assert len([*kept.iterdir()]) == 2 and len([*kept.rglob("*.parquet")]) == 14


# Filtering again.


def test_filtering_again_is_filtering_at_once(lines, tmp_path):
    (tmp_path / "eval.txt").write_text(sentence(3) + "\n" + sentence(4) + "\n")
    make_corpus(settings(lines), tmp_path / "again", model=StandIn())
    strict = len(triplets(tmp_path / "again"))
    refilter(tmp_path / "again", alpha=0.8, leaks=[tmp_path / "eval.txt"])
    make_corpus(settings(lines, alpha=0.8, leaks=[tmp_path / "eval.txt"]), tmp_path / "once", model=StandIn())
    assert content(tmp_path / "again") == content(tmp_path / "once")
    assert len(triplets(tmp_path / "once")) > strict
    anchors = {row["anchor"] for row in triplets(tmp_path / "once")}
    assert sentence(3) not in anchors
    assert sentence(5) in anchors | {row["anchor"] for row in candidates(tmp_path / "once")}


def test_filtering_again_keeps_the_settings_that_are_not_named(lines, tmp_path):
    (tmp_path / "eval.txt").write_text(sentence(3) + "\n")
    make_corpus(settings(lines, leaks=[tmp_path / "eval.txt"]), tmp_path / "out", model=StandIn())
    audit = refilter(tmp_path / "out", alpha=0.76)
    assert audit["filters"]["dropped"]["leak"]["num"] == 1
    assert audit["filters"]["settings"]["alpha"] == 0.76


def test_what_is_no_filter_or_no_corpus_is_refused(lines, tmp_path):
    make_corpus(settings(lines), tmp_path / "out", model=StandIn())
    with pytest.raises(SettingError, match="top_p: there is no such setting"):
        refilter(tmp_path / "out", settings={"top_p": 0.5})
    with pytest.raises(InputError, match=r"audit\.json: there is no such file\. Name a folder that"):
        refilter(tmp_path)
    (tmp_path / "out" / "candidates" / "000002.parquet").unlink()
    with pytest.raises(InputError, match=r"000002\.parquet: is not as it was written"):
        refilter(tmp_path / "out", alpha=0.5)
    assert triplets(tmp_path / "out"), "the old triplets are gone"


# Sentences.


def kept(path, **more):
    sentences = Sentences(checked(SentenceSettings, {"sentences": path, **more}))
    return [*sentences], sentences.audit()


def test_bad_lines_are_counted_and_told_of_and_the_rest_is_used(tmp_path):
    path = tmp_path / "in.txt"
    good = [sentence(i).encode() for i in range(3)]
    path.write_bytes(
        b"\n".join([good[0], b"", b"  ", b"\xff\xfe not text", b"nul \0", b"word " * 10_000, *good[1:], b""])
    )
    audit = make_corpus(settings(path), tmp_path / "out", model=StandIn())
    assert audit["sentences"]["sources"][str(path)] == {"num_read": 8, "num_bad": 4}
    assert audit["sentences"]["dropped"]["long"]["num"] == 1
    assert len(audit["sentences"]["dropped"]["long"]["samples"][0]) == 200
    assert audit["sentences"]["num_kept"] == 3
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()]
    assert [reject["line"] for reject in rejects] == [2, 3, 4, 5]


def test_a_sentence_is_used_once_over_all_sources(tmp_path):
    (tmp_path / "a.txt").write_text("".join(f"{sentence(i)}\n" for i in (1, 2, 1)))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": sentence(i).upper() + "!"}) + "\n" for i in (2, 3)))
    paths = [str(tmp_path / name) for name in ("a.txt", "b.jsonl")]
    used, audit = kept(paths)
    assert used == [sentence(1), sentence(2), sentence(3).upper() + "!"]
    assert (audit["num"], audit["num_kept"], audit["dropped"]["duplicate"]["num"]) == (5, 3, 2)
    assert len(kept(paths, deduplicate=False)[0]) == 5


def test_two_columns_of_one_file_are_counted_together(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text(
        "title\tbody\n" + "".join(f"{sentence(i)}\t{sentence(i + 9)}\n" for i in range(3)) + f"{sentence(3)}\t\n"
    )
    used, audit = kept([{"path": str(path), "columns": {"text": name}} for name in ("title", "body")])
    assert used == [sentence(i) for i in (0, 1, 2, 3, 9, 10, 11)]
    assert audit["sources"] == {str(path): {"num_read": 8, "num_bad": 1}}


def test_each_source_gives_at_most_so_many_sentences(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {sentence(i // 2)}\n" for i in range(3000)))
    used, audit = kept([str(tmp_path / f"{name}.txt") for name in "ab"], max_sentences=1200)
    assert used == [f"{name} {sentence(i)}" for name in "ab" for i in range(1200)]
    assert audit["num"] == audit["num_kept"] + audit["dropped"]["duplicate"]["num"]


@pytest.mark.parametrize(
    ("more", "least", "most"), [({}, 8, 64), ({"min_premise_words": 3, "max_premise_words": None}, 3, 100)]
)
def test_sentences_have_a_length(tmp_path, more, least, most):
    (tmp_path / "in.txt").write_text("".join(" ".join(["word"] * num + [str(num)]) + "\n" for num in range(100)))
    used, audit = kept(tmp_path / "in.txt", **more)
    assert [len(text.split()) for text in used] == [*range(least, min(most, 100) + 1)]
    assert audit["num"] == 100 == audit["num_kept"] + sum(drop["num"] for drop in audit["dropped"].values())


def test_documents_are_split_and_the_language_is_checked(tmp_path):
    document = (
        "Dr. Smith went to Washington on the 5th of January to see it. He did not like what he saw there at all!\n\n"
        "Le petit chat noir dort sur le canapé de ma grand-mère depuis ce matin. Too short."
    )
    (tmp_path / "docs.jsonl").write_text(json.dumps({"text": document}) + "\n")
    used, audit = kept(tmp_path / "docs.jsonl", split=True, language="en")
    assert used == [
        "Dr. Smith went to Washington on the 5th of January to see it.",
        "He did not like what he saw there at all!",
    ]
    assert (audit["num_texts"], audit["num"]) == (1, 4)
    assert {rule: drop["num"] for rule, drop in audit["dropped"].items() if drop["num"]} == {"language": 1, "short": 1}
    assert len(kept(tmp_path / "docs.jsonl", split=True)[0]) == 3


def test_an_unknown_language_is_refused(lines):
    with pytest.raises(SettingError, match="language 'klingon': is unknown"):
        kept(lines, language="klingon")


def test_a_file_without_a_sentence_of_use_is_an_error(tmp_path):
    (tmp_path / "in.txt").write_text("too short\n")
    with pytest.raises(InputError, match="none of 1 sentences is of use"):
        make_corpus(settings(tmp_path / "in.txt"), tmp_path / "out", model=StandIn())
    (tmp_path / "none.txt").write_text("\n\n")
    with pytest.raises(InputError, match="no rows"):
        make_corpus(settings(tmp_path / "none.txt"), tmp_path / "out", model=StandIn())


# Strategies.


def test_without_negatives_there_are_only_entailments(lines, tmp_path):
    model = StandIn()
    make_corpus(settings(lines, strategy="no-negatives"), tmp_path / "out", model=model)
    assert model.num_generated == 50
    assert all(row["negative"] is None and row["negative_true"] is None for row in candidates(tmp_path / "out"))
    rows = triplets(tmp_path / "out")
    assert set(rows[0]) == {"anchor", "positive", "positive_true"}
    assert [row.negatives for row in open_rows(tmp_path / "out" / "triplets.jsonl", kind="triplets")] == [()] * len(
        rows
    )


def test_retrieval_takes_the_other_sentences_that_share_most(tmp_path):
    texts = [
        "a young man is getting ready to fly a red kite",
        "a man in the yard is getting ready to fly a kite",
        "the hotel has three hundred rooms with a view over it",
        "one of the three hundred rooms of the grand hotel",
        "quarks gluons leptons bosons neutrinos muons taus photons",
    ]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    model = StandIn()
    make_corpus(settings(tmp_path / "in.txt", strategy="retrieval", shard_sentences=2), tmp_path / "out", model=model)
    rows = candidates(tmp_path / "out")
    assert [(row["anchor"], row["positive"]) for row in rows] == [
        (texts[0], texts[1]), (texts[1], texts[0]), (texts[2], texts[3]), (texts[3], texts[2]),
    ]  # fmt: skip
    assert model.num_generated == 0
    assert rows[0]["positive_true"] == pytest.approx(model.probability(texts[0], texts[1]))
    make_corpus(settings(tmp_path / "in.txt", strategy="retrieval", num_samples=9), tmp_path / "nine", model=model)
    assert all(row["anchor"] != row["positive"] for row in candidates(tmp_path / "nine"))


@pytest.fixture
def translators(tmp_path, t5_tokenizer):
    from tercet.encoder.generator import load_generator, save_generator

    t5_tokenizer.save_pretrained(tmp_path / "tokenizer")
    for seed, name in enumerate(("there", "back")):
        model, tokenizer = load_generator("random:t5-tiny", tokenizer=tmp_path / "tokenizer", seed=seed)
        save_generator(model, tokenizer, tmp_path / name)
    return {name: str(tmp_path / name) for name in ("there", "back")}


def test_back_translation_goes_there_and_back(lines, tmp_path, translators):
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    more = {"strategy": "backtranslation", "max_new_tokens": 6, "max_sentences": 3, "num_samples": 2, **translators}
    make_corpus(settings(lines, **more), tmp_path / "out", model=StandIn())
    rows = candidates(tmp_path / "out")

    def by_hand(name, text, num):
        tokenizer = AutoTokenizer.from_pretrained(translators[name])
        model = AutoModelForSeq2SeqLM.from_pretrained(translators[name]).eval()
        with torch.no_grad():
            ids = tokenizer(text, truncation=True, max_length=12, return_tensors="pt")
            made = model.generate(**ids, num_beams=4, num_return_sequences=num, max_new_tokens=6)
        return [text.strip() for text in tokenizer.batch_decode(made, skip_special_tokens=True)]

    for i in range(3):
        [abroad] = by_hand("there", sentence(i), 1)
        assert [row["positive"] for row in rows if row["sentence"] == i] == by_hand("back", abroad, 2)


def test_translators_with_pickled_weights_are_converted_where_it_is_allowed(lines, tmp_path, translators):
    import torch
    from safetensors.torch import load_file

    more = {"strategy": "backtranslation", "max_new_tokens": 6, "max_sentences": 3, **translators}
    make_corpus(settings(lines, **more), tmp_path / "safe", model=StandIn())
    for name in translators.values():
        weights = Path(name) / "model.safetensors"
        torch.save(load_file(weights), Path(name) / "pytorch_model.bin")
        weights.unlink()
    with pytest.raises(ModelError, match="convert_pickle"):
        make_corpus(settings(lines, **more), tmp_path / "refused", model=StandIn())
    make_corpus(settings(lines, **more, convert_pickle=True), tmp_path / "converted", model=StandIn())
    assert candidates(tmp_path / "converted") == candidates(tmp_path / "safe")


def test_back_translation_goes_through_several_languages_in_one_run(lines, tmp_path, translators):
    there, back = translators["there"], translators["back"]
    more = {"strategy": "backtranslation", "max_new_tokens": 6, "max_sentences": 3, "num_samples": 2}
    for name, ways in {"one": (there, back), "other": (back, there), "both": ([there, back], [back, there])}.items():
        made = settings(lines, **more, there=ways[0], back=ways[1])
        make_corpus(made, tmp_path / name, model=StandIn())
    found = {
        name: [[row["positive"] for row in candidates(tmp_path / name) if row["sentence"] == i] for i in range(3)]
        for name in ("one", "other", "both")
    }
    assert found["one"] != found["other"]
    assert found["both"] == [one + other for one, other in zip(found["one"], found["other"], strict=True)]
    with pytest.raises(SettingError, match="there and back name the same number of models"):
        settings(lines, **more, there=[there, back], back=[there])


def test_translators_go_to_a_gpu_where_there_is_one(translators, monkeypatch):
    import torch
    from transformers import PreTrainedModel

    from tercet.synthesis.translation import Translator

    places = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(PreTrainedModel, "to", lambda self, place: places.append(place))
    Translator.load(translators["there"])
    Translator.load(translators["there"], device="cpu")
    assert places == ["cuda", "cpu"]


def test_texts_that_are_cut_before_they_are_translated_are_counted(tmp_path, translators, caplog):
    from tercet.synthesis.translation import Translator

    translator = Translator.load(translators["there"])
    translator.translate(["dogs run"], max_new_tokens=20)
    assert not caplog.text
    translator.translate(["dogs run", "dogs run " * 30, "dogs " * 90], max_new_tokens=20)
    assert "2 of 3 texts have more than 40 tokens" in caplog.text


def test_translators_and_strategies_must_fit(lines):
    with pytest.raises(SettingError, match="there and back"):
        settings(lines, strategy="backtranslation", there="x")
    with pytest.raises(SettingError, match="there and back"):
        settings(lines, there="x", back="y")
    with pytest.raises(SettingError, match="strategy 'dino'"):
        settings(lines, strategy="dino")


def test_strategies_stand_side_by_side(lines, tmp_path):
    for name, strategy in {"a": "generate", "b": "no-negatives"}.items():
        make_corpus(settings(lines, strategy=strategy, num_samples=3), tmp_path / name, model=StandIn())
    examples = compare([tmp_path / "a", tmp_path / "b"], num=4)
    assert len(examples) == 4
    for example in examples:
        assert [*example.found] == ["a (generate)", "b (no-negatives)"]
        for name, found in example.found.items():
            mine = [row for row in triplets(tmp_path / name[0]) if row["anchor"] == example.anchor]
            assert found == [(row["positive"], row.get("negative")) for row in mine[:2]]
            assert found


def test_folders_of_one_name_are_told_apart_by_their_paths(lines, tmp_path):
    folders = [tmp_path / name for name in ("a/synthetic", "b/synthetic", "other")]
    for top_p, folder in zip((0.9, 0.5, 0.8), folders, strict=True):
        make_corpus(settings(lines, num_samples=3, top_p=top_p), folder, model=StandIn())
    example = compare(folders, num=1)[0]
    assert [*example.found] == [f"{folders[0]} (generate)", f"{folders[1]} (generate)", "other (generate)"]
    for folder, found in zip(folders, example.found.values(), strict=True):
        mine = [row for row in triplets(folder) if row["anchor"] == example.anchor]
        assert found == [(row["positive"], row["negative"]) for row in mine[:2]]


def test_an_empty_text_of_the_model_is_dropped_and_never_judged(lines, tmp_path):
    class Silent(StandIn):
        def generate(self, texts, **more):
            return [[""] for _ in texts] if more["relation"] == "entailment" else super().generate(texts, **more)

    audit = make_corpus(settings(lines), tmp_path / "out", model=Silent())
    assert audit["filters"]["dropped"]["empty"]["num"] == audit["filters"]["num"] == 50
    assert candidates(tmp_path / "out")[0]["positive_true"] is None


def test_the_preview_and_the_corpus_agree_where_a_candidate_is_filtered_alone(lines, tmp_path):
    make_corpus(settings(lines), tmp_path / "out", model=StandIn())
    alone = [row for row in candidates(tmp_path / "out") if Filter(FilterSettings()).accept([Candidate(**row)])]
    assert len(alone) == len(triplets(tmp_path / "out"))


def test_a_setting_that_is_given_twice_is_refused(lines, tmp_path):
    with pytest.raises(SettingError, match="alpha: is given as an argument and among the settings"):
        synthesize(lines, tmp_path / "out", alpha=0.2, settings={"alpha": 0.5})
    make_corpus(settings(lines), tmp_path / "out", model=StandIn())
    with pytest.raises(SettingError, match="alpha: is given as an argument and among the settings"):
        refilter(tmp_path / "out", alpha=0.2, settings={"alpha": 0.5})
