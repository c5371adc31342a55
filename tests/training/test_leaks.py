"""The leak check, on files in the formats of the evaluation data."""

import json
from pathlib import Path

import pytest
import yaml

from tercet import InputError
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.words import as_words, texts_below
from tercet.training.leaks import leaks as find_leaks
from tercet.training.recipe import make_recipe, read_recipe


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "eval"
    folder.mkdir()
    (folder / "sts.txt").write_text("A man plays the guitar.\tSomebody makes music at home.\n")
    (folder / "trec.label").write_bytes("DESC:manner How did caf\xe9s begin in Paris ?\n".encode("latin-1"))
    (folder / "qqp.json").write_text(json.dumps({"1": {"text_a": "What is a leak in data?", "label": "1"}}))
    (folder / "nli.ndjson").write_text(json.dumps({"pair": ["Two dogs run on snow", 3]}) + "\n")
    (folder / "table.CSV").write_text('a,b\n"A cell of\ntwo whole lines",1\n')
    return folder


@pytest.fixture
def recipe(tmp_path):
    def make(*lines):
        (tmp_path / "rows.tsv").write_text("anchor\tpositive\n" + "".join(f"{a}\t{b}\n" for a, b in lines))
        loop = {"rows": str(tmp_path / "rows.tsv"), "batch": 2, "steps": 1, "learning_rate": 1e-3}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"start": "x", "stages": [{"contrast": loop}]}))
        return read_recipe(tmp_path / "recipe.yaml")

    return make


def test_texts_are_found_however_they_are_written(recipe, data, tmp_path):
    rows = [
        ("a man PLAYS the guitar", "nothing of the kind here"),
        ("How did cafés begin in Paris?", "“What is a leak in data”"),
        ("Two dogs run on snow!", "music"),
    ]
    (leaks,) = find_leaks(recipe(*rows), data=data).values()
    assert (leaks.num_found, leaks.num_texts, leaks.num_short) == (4, 5, 1)
    assert leaks.examples[0] == "a man PLAYS the guitar"


def test_a_part_of_a_text_is_no_leak(recipe, data):
    (leaks,) = find_leaks(recipe(("A man plays the", "plays the guitar on stage")), data=data).values()
    assert leaks.num_found == 0


@pytest.mark.parametrize(
    "text", ["一个男人正在公园里弹吉他。", "男の人がギターを弾いています。", "แมวนอนรอปลา"], ids=["zh", "ja", "th"]
)
def test_texts_of_scripts_without_blanks_are_found_too(recipe, data, tmp_path, text):
    (data / "other.txt").write_text(f"{text}\n无\n")
    found = recipe((text, "nothing of the kind here"), ("Two cats sleep at noon", "无"))
    (leaks,) = find_leaks(found, data=data).values()
    assert (leaks.num_found, leaks.num_texts, leaks.num_short) == (1, 3, 1)
    rows = open_rows({"sources": [tmp_path / "rows.tsv"], "leaks": [data]}, kind="triplets")
    assert [row.anchor for row in rows] == ["Two cats sleep at noon"]


def test_an_empty_folder_is_refused(recipe, tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no evaluation texts"):
        find_leaks(recipe(("a", "b")), data=tmp_path / "none")


def test_words_are_compared(data):
    assert as_words("  It's — a “TEST”, №1! ") == "it s a test no1"
    assert {"a man plays the guitar", "how did cafés begin in paris", "two dogs run on snow"} <= texts_below(data)


def test_rows_with_a_known_text_are_left_out_and_counted(recipe, data, tmp_path):
    known, clean = ("a man PLAYS the guitar", "nothing of the kind here"), ("Two cats sleep at noon", "music")
    found = recipe(known, clean)
    rows = open_rows({"sources": [tmp_path / "rows.tsv"], "leaks": [data]}, kind="triplets")
    assert [row.anchor for row in rows] == [clean[0]]
    counts = rows.describe()["sources"][0]
    assert (counts["num_left_out_by_leak"], counts["num_rows"], counts["num_bad"]) == (1, 1, 0)
    assert find_leaks(found, data=data)[str(tmp_path / "rows.tsv")].num_found == 1


def test_the_check_does_not_find_what_a_recipe_leaves_out(recipe, data, tmp_path):
    recipe(("a man PLAYS the guitar", "nothing of the kind here"), ("Two cats sleep at noon", "music"))
    stage = yaml.safe_load((tmp_path / "recipe.yaml").read_text())["stages"][0]["contrast"]
    careful = {**stage, "rows": {"sources": [stage["rows"]], "leaks": [str(data)]}}
    for stages, num in (([careful], 0), ([careful, stage], 1)):
        content = {"start": "x", "stages": [{"name": f"s{n}", "contrast": each} for n, each in enumerate(stages)]}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(content))
        (leaks,) = find_leaks(read_recipe(tmp_path / "recipe.yaml"), data=data).values()
        assert leaks.num_found == num


@pytest.fixture
def found(data, tmp_path):
    """Return a function that counts what is found of some stages, which read files of the test's folder."""

    def find(*stages):
        loop = {"batch": 2, "steps": 1, "learning_rate": 1e-3}
        given = [
            {"name": f"s{n}", kind: settings if kind == "synthesize" else {**loop, **settings}}
            for n, (kind, settings) in enumerate(stages)
        ]
        recipe = make_recipe({"start": "x", "stages": given}, default_name="x")
        return {Path(path).name: leaks.num_found for path, leaks in find_leaks(recipe, data=data).items()}

    return find


@pytest.mark.parametrize(("kind", "num"), [("contrast", 1), ("classify", 3), ("synthesizer", 2)])
def test_rows_are_read_as_the_stage_reads_them(found, tmp_path, kind, num):
    (tmp_path / "nli.tsv").write_text(
        "premise\thypothesis\tlabel\n"
        "Here is the first premise.\tSomebody makes music at home.\tentailment\n"
        "Here is the first premise.\tTwo dogs run on snow!\tneutral\n"
        "Here is the second premise.\tA man plays the guitar.\tcontradiction\n"
    )
    assert found((kind, {"rows": str(tmp_path / "nli.tsv")})) == {"nli.tsv": num}


def test_sentences_that_triplets_are_made_of_are_looked_for(found, data, tmp_path):
    (tmp_path / "in.txt").write_text(
        "A man plays the guitar.\nTwo cats sleep at noon.\nSomething else is going on here.\n"
    )
    stage = {"sentences": str(tmp_path / "in.txt"), "model": "x", "min_premise_words": 4}
    later = ("contrast", {"rows": "@s0"})
    assert found(("synthesize", stage), later) == {"in.txt": 1}
    assert found(("synthesize", {**stage, "leaks": [str(data)]}), later) == {"in.txt": 0}


def test_bad_rows_that_a_stage_leaves_out_are_no_error(found, tmp_path):
    (tmp_path / "bad.tsv").write_text("anchor\tpositive\nA man plays the guitar\tmusic\n\tmusic\n")
    rejects = tmp_path / "rejects.jsonl"
    rows = {"sources": [str(tmp_path / "bad.tsv")], "on_error": "skip", "max_bad_fraction": 1, "rejects": str(rejects)}
    assert found(("contrast", {"rows": rows})) == {"bad.tsv": 1}
    assert not rejects.exists()


def test_every_way_in_which_a_file_is_read_counts(found, tmp_path):
    (tmp_path / "a.en").write_text("A man plays the guitar.\n")
    (tmp_path / "a.fr").write_text("How did cafés begin in Paris?\n")
    lines = ("contrast", {"rows": str(tmp_path / "a.en")})
    rows = {"path": str(tmp_path / "a.en"), "translations": str(tmp_path / "a.fr")}
    aligned = ("parallel", {"rows": rows, "design": "multilingual"})
    assert found(lines) == {"a.en": 1}
    assert found(lines, aligned) == found(aligned, lines) == {"a.en": 2}


def test_other_evaluation_texts_are_other_rows(recipe, data, tmp_path):
    recipe(("Two cats sleep at noon", "music"))
    settings = {"sources": [tmp_path / "rows.tsv"], "leaks": [data]}
    before = open_rows(settings, kind="triplets").describe()["sha256"]
    (data / "more.txt").write_text("One more text of four words.\n")
    assert open_rows(settings, kind="triplets").describe()["sha256"] != before


@pytest.mark.parametrize("text", ["Two dogs run on snow", "a cell of two whole lines", "What is a leak in data"])
def test_texts_are_found_in_files_of_all_formats(data, text):
    assert as_words(text) in texts_below(data)


def test_leaks_are_counted_by_file_and_task_and_files_that_no_task_scores_are_left_out(recipe, tmp_path):
    folder = tmp_path / "scored"
    texts = {
        "senteval/STS/STSBenchmark/sts-test.csv": "A man plays the guitar at home",
        "senteval/STS/STS14-en-test/STS.input.images.txt": "A man plays the guitar at home",
        "senteval/STS/STSBenchmark/sts-train.csv": "Two dogs run on the snow",
        "snli/s1.test": "Two dogs run on the snow",
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{text}\n")
    rows = recipe(("A man plays the guitar at home", "Two dogs run on the snow"), ("One more sentence is here", "x"))
    (leaks,) = find_leaks(rows, data=folder).values()
    assert (leaks.num_found, leaks.num_texts) == (1, 3)
    assert leaks.files == dict.fromkeys(list(texts)[:2], 1)
    assert leaks.tasks == {"STSB": 1, "geometry": 1, "STS14": 1}
