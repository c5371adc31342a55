"""Sources of training rows: every format and kind, columns by their names, NLI, and what happens to bad rows."""

import csv
import hashlib
import json
import logging
import os
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from tercet import InputError, RowError, SettingError
from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import NliPair, ParallelPair, ScoredPair, Text, Triplet
from tercet.data.rows.settings import RowSettings

RECORDS = [
    {"anchor": "A man plays.", "positive": "Somebody plays.", "negative": "Nobody plays."},
    {"anchor": 'He said "no", twice', "positive": "Ünïcödé 日本語", "negative": "a\u2028b"},
    {"anchor": "  spaces  ", "positive": "x,y;z", "negative": "'"},
]
TRIPLETS = [Triplet(r["anchor"], r["positive"], (r["negative"],)) for r in RECORDS]


def write(path, records):
    """Write records in the format of the file's ending, with other tools than those under test."""
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        case ".tsv":
            lines = [list(records[0]), *(record.values() for record in records)]
            path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
        case ".csv":
            with path.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, list(records[0]))
                writer.writeheader()
                writer.writerows(records)
        case ".parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path, row_group_size=2)
    return path


def text_file(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(source, kind="triplets", **settings):
    return list(open_rows({"sources": [source], **settings}, kind=kind))


def counts_of(rows):
    [source] = rows.describe()["sources"]
    return {name.removeprefix("num_"): value for name, value in source.items() if name.startswith("num_")}


@pytest.mark.parametrize("ending", ["jsonl", "tsv", "csv", "parquet"])
def test_each_format_gives_the_same_triplets(tmp_path, ending):
    rows = open_rows(write(tmp_path / f"a.{ending}", RECORDS), kind="triplets")
    assert list(rows) == list(rows) == TRIPLETS
    assert rows.num_rows == 3
    assert counts_of(rows) == {"read": 3, "bad": 0, "unlabelled": 0, "rows": 3}


def test_a_csv_record_over_several_lines_is_read_by_its_place(tmp_path):
    records = [{"anchor": f"a{i}\nb\n\nc", "positive": f'"{i}"\n'} for i in range(5)]
    rows = open_rows(write(tmp_path / "a.csv", records), kind="triplets")
    batches = rows.batches(batch=1, seed=0, epochs=1)
    expected = {(record["anchor"], record["positive"]) for record in records}
    assert {(row.anchor, row.positive) for [row] in batches} == expected


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_rows(tmp_path):
    path = text_file(tmp_path, "a.tsv", b"\xef\xbb\xbfanchor\tpositive\r\na\tb\r\n")
    assert rows_of(path) == [Triplet("a", "b")]
    path = text_file(tmp_path, "a.jsonl", b'\xef\xbb\xbf{"anchor": "a", "positive": "b"}\r\n')
    assert rows_of(path) == [Triplet("a", "b")]


@pytest.mark.parametrize(
    ("record", "kind", "row"),
    [
        ({"sent0": "a", "sent1": "b", "hard_neg": "c"}, "triplets", Triplet("a", "b", ("c",))),
        ({"premise": "a", "entailment": "b", "contradiction": "c"}, "triplets", Triplet("a", "b", ("c",))),
        ({"query": "a", "answer": "b"}, "triplets", Triplet("a", "b")),
        ({"question": "a", "answer": "b", "id": 7}, "triplets", Triplet("a", "b")),
        ({"sentence1": "a", "sentence2": "b"}, "triplets", Triplet("a", "b")),
        ({"words": "a", "gloss": "b"}, "triplets", Triplet("a", "b")),
        ({"Title": "a", "Body": "b"}, "triplets", Triplet("a", "b")),
        ({"text": "a", "label": 3}, "triplets", Text("a")),
        ({"whatever": "a"}, "triplets", Text("a")),
        ({"en": "a", "zh": "b"}, "parallel", ParallelPair("a", "b")),
        ({"en": "a", "zh": "b"}, "triplets", Triplet("a", "b")),
        ({"english": "a", "non_english": "b"}, "parallel", ParallelPair("a", "b")),
        ({"anchor": "a", "positive": "b"}, "parallel", ParallelPair("a", "b")),
        ({"sentence1": "a", "sentence2": "b", "score": "4.5"}, "scored", ScoredPair("a", "b", 4.5)),
        (
            {"sentence_A": "a", "sentence_B": "b", "relatedness_score": 3, "entailment_judgment": "NEUTRAL"},
            "scored",
            ScoredPair("a", "b", 3.0),
        ),
        (
            {"sentence_A": "a", "sentence_B": "b", "relatedness_score": 3, "entailment_judgment": "NEUTRAL"},
            "nli",
            NliPair("a", "b", "neutral"),
        ),
        ({"premise": "a", "hypothesis": "b", "label": "entailment"}, "nli", NliPair("a", "b", "entailment")),
    ],
)
def test_columns_are_known_by_their_usual_names(tmp_path, record, kind, row):
    assert rows_of(write(tmp_path / "a.jsonl", [record]), kind) == [row]


def test_a_row_may_have_several_negatives_in_columns_or_in_a_list(tmp_path):
    columns = {"anchor": "a", "positive": "b", "negative_10": "d", "negative_2": "c", "negative_3": ""}
    assert rows_of(write(tmp_path / "a.jsonl", [columns])) == [Triplet("a", "b", ("c", "d"))]
    lists = [{"anchor": "a", "positive": "b", "negatives": ["c", "d"]}, {"anchor": "e", "positive": "f"}]
    assert rows_of(write(tmp_path / "b.jsonl", lists)) == [Triplet("a", "b", ("c", "d")), Triplet("e", "f")]
    later = [{"anchor": "a", "positive": "b", "negative_1": "c"}, {**columns, "negative_1": "x"}]
    assert rows_of(write(tmp_path / "c.jsonl", later))[1].negatives == ("x", "c", "d")


def test_negatives_count_though_the_first_rows_have_none(tmp_path):
    pair, triplet = {"anchor": "a", "positive": "b"}, {"positive": "d", "anchor": "c", "negative": "e"}
    path = write(tmp_path / "rows.jsonl", [pair, triplet, pair])
    wanted = [Triplet("a", "b"), Triplet("c", "d", ("e",)), Triplet("a", "b")]
    rows = open_rows(path, kind="triplets")
    assert [*rows] == wanted
    source = rows.describe()["sources"][0]
    assert (source["kind"], source["columns"]["negative"]) == ("triplets", ["negative"])
    assert sorted(map(str, next(rows.batches(batch=3, seed=0, epochs=1)))) == sorted(map(str, wanted))
    assert rows_of({"path": path, "kind": "pairs"})[1] == Triplet("c", "d")


def test_columns_can_be_named(tmp_path):
    dotted = write(tmp_path / "dotted.jsonl", [{"text.a": "a", "text.b": "b"}])
    columns = {"anchor": "text.a", "positive": "text.b"}
    assert rows_of({"path": dotted, "columns": columns}) == [Triplet("a", "b")]
    record = {"left": "a", "right": "b", "n1": "c", "n2": "d", "anchor": "no", "translation": {"en": "x", "fr": "y"}}
    path = write(tmp_path / "a.jsonl", [record])
    columns = {"anchor": "left", "positive": "right", "negative": ["n1", "n2"]}
    assert rows_of({"path": path, "columns": columns}) == [Triplet("a", "b", ("c", "d"))]
    columns = {"source": "translation.en", "target": "translation.fr"}
    for ending in ("jsonl", "parquet"):
        path = write(tmp_path / f"b.{ending}", [record])
        assert rows_of({"path": str(path), "columns": columns}, "parallel") == [ParallelPair("x", "y")]


@pytest.mark.parametrize(("name", "comma"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_a_table_without_a_header_takes_names_from_a_list(tmp_path, name, comma):
    lines = [["7", "a", "b", "x", "entailment"], ["8", "c", "d", "y", "neutral"]]
    path = text_file(tmp_path, name, "".join(comma.join(line) + "\n" for line in lines))
    source = {"path": path, "columns": ["_", "premise", "hypothesis", "_", "label"]}
    assert rows_of(source, "nli") == [NliPair("a", "b", "entailment"), NliPair("c", "d", "neutral")]
    with pytest.raises(SettingError, match="list of columns is for CSV and TSV"):
        rows_of({**source, "format": "jsonl"}, "nli")


@pytest.mark.parametrize("kind", ["texts", "triplets", "inference"])
def test_plain_lines_are_texts_whatever_is_wanted(tmp_path, kind):
    assert rows_of(text_file(tmp_path, "a.txt", "x\ny\n"), kind) == [Text("x"), Text("y")]


def test_a_set_gives_each_text_with_the_one_behind_it(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"same_image": ["a", "b", "c"]}, {"same_image": ["d", "e"]}])
    rows = open_rows(path, kind="triplets")
    assert list(rows) == [Triplet("a", "b"), Triplet("b", "c"), Triplet("d", "e")]
    shuffled = [row for batch in rows.batches(batch=1, seed=3, epochs=1) for row in batch]
    assert sorted(shuffled, key=str) == sorted(rows, key=str)


SNLI = {
    "annotator_labels": ["neutral"],
    "captionID": "3416050480.jpg#4",
    "gold_label": "neutral",
    "pairID": "1n",
    "sentence1": "A person on a horse.",
    "sentence1_binary_parse": "( A person )",
    "sentence2": "A person trains a horse.",
    "sentence2_binary_parse": "( A person )",
}


def test_snli_and_multinli_are_read_as_they_are_distributed(tmp_path):
    unsure = {**SNLI, "gold_label": "-"}
    rows = open_rows(write(tmp_path / "snli_1.0_train.jsonl", [SNLI, unsure]), kind="nli")
    expected = [NliPair(SNLI["sentence1"], SNLI["sentence2"], "neutral")]
    assert list(rows) == expected
    assert counts_of(rows) == {"read": 2, "bad": 0, "unlabelled": 1, "rows": 1}
    header = "gold_label sentence1_parse sentence1 sentence2 promptID genre label1 label2 label3".split()
    cells = ["neutral", '(ROOT "', SNLI["sentence1"], SNLI["sentence2"], "1", "fiction", "neutral"]
    lines = [header, cells, [*cells, "", ""], ["-", *cells[1:]]]
    path = text_file(tmp_path, "multinli_1.0_train.txt", "".join("\t".join(line) + "\n" for line in lines))
    rows = open_rows(path, kind="nli")
    assert list(rows) == expected * 2
    assert counts_of(rows)["unlabelled"] == 1
    text_file(tmp_path, "multinli_1.0_train.txt", "".join("\t".join(line) + "\n" for line in [header, cells[:4]]))
    with pytest.raises(RowError, match=r"train\.txt:2: has 4 columns where the header has 9"):
        open_rows(path, kind="nli")


def test_labels_can_be_numbers_if_it_is_said_what_they_stand_for(tmp_path):
    records = [{"premise": "a", "hypothesis": "b", "label": label} for label in (0, 1, 2, -1)]
    path = write(tmp_path / "a.parquet", records)
    with pytest.raises(RowError, match=r"a\.parquet:1: the label '0' is unknown. Known: entailment, neutral"):
        open_rows(path, kind="nli")
    labels = {0: "entailment", 1: "neutral", 2: "contradiction"}
    rows = open_rows({"path": path, "labels": labels}, kind="nli")
    assert [row.label for row in rows] == ["entailment", "neutral", "contradiction"]
    assert counts_of(rows)["unlabelled"] == 1


def nli(tmp_path, pairs):
    records = [{"premise": p, "hypothesis": h, "label": label} for p, h, label in pairs]
    return write(tmp_path / "nli.jsonl", records)


def test_labelled_pairs_become_a_triplet_for_each_entailment(tmp_path):
    pairs = [
        ("p", "p yes 0", "entailment"),
        ("q", "q yes", "entailment"),
        ("p", "p no 0", "contradiction"),
        ("p", "p maybe", "neutral"),
        ("r", "r no", "contradiction"),
        ("p", "p yes 1", "entailment"),
        ("s", "s maybe", "neutral"),
        ("p", "p no 1", "contradiction"),
        ("p", "p yes 2", "entailment"),
    ]
    path = nli(tmp_path, pairs)
    rows = open_rows(path, kind="triplets")
    assert list(rows) == [
        Triplet("p", "p yes 0", ("p no 0",)),
        Triplet("p", "p yes 1", ("p no 1",)),
        Triplet("p", "p yes 2", ("p no 0",)),
        Triplet("q", "q yes"),
    ]
    assert counts_of(rows) == {
        "read": 9, "bad": 0, "unlabelled": 0, "labelled": 9, "rows": 4,
        "premises": 4, "premises_left_out": 2, "triplets": 3, "pairs": 1,
    }  # fmt: skip
    both = open_rows({"path": path, "nli_negatives": 5, "nli_pairs": False}, kind="triplets")
    assert [row.negatives for row in both] == [("p no 0", "p no 1"), ("p no 1", "p no 0"), ("p no 0", "p no 1")]
    assert counts_of(both)["premises_left_out"] == 3


def test_grouping_is_that_of_a_plain_dictionary(tmp_path):
    rng = random.Random(1)
    labels = ["entailment", "neutral", "contradiction"]
    pairs = [(f"p{rng.randrange(40)} 日", f"h{i} é", rng.choice(labels)) for i in range(200)]
    groups = {}
    for premise, hypothesis, label in pairs:
        groups.setdefault(premise, {name: [] for name in labels})[label].append(hypothesis)
    expected = [
        Triplet(premise, yes, (no[k % len(no)],) if no else ())
        for premise, group in groups.items()
        for no in [group["contradiction"]]
        for k, yes in enumerate(group["entailment"])
    ]
    assert rows_of(nli(tmp_path, pairs)) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": "", "positive": "b"}\n', r":2: 'anchor' is empty"),
        ("a.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": "a", "positive": " "}\n', r":2: 'positive' is empty"),
        ("a.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": "a", "positive": 3}\n', ":2: 'positive' is int"),
        ("a.jsonl", '{"anchor": "a", "positive": null}\n', ":1: 'positive' is null"),
        ("a.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": "a"}\n', ":2: has no column for 'positive'"),
        ("a.jsonl", '{"anchor": "\\ud800", "positive": "b"}\n', ":1: .* half a surrogate"),
        ("a.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor"\n', ":2: is not JSON"),
        ("a.jsonl", '{"texts": ["a", "b"]}\n{"texts": ["a"]}\n', ":2: .* no list of two or more"),
        ("a.tsv", "anchor\tpositive\na\tb\nc\n", ":3: has 1 columns where the header has 2"),
        ("a.tsv", "anchor\tpositive\na\tb\nc\td\te\n", ":3: has 3 columns"),
        ("a.tsv", b"anchor\tpositive\na\tb\nc\t\xff\n", ":3: is not UTF-8 at byte 2"),
        ("a.tsv", "premise\thypothesis\tlabel\na\tb\tneutral\na\tb\tperhaps\n", ":3: the label 'perhaps' is unknown"),
        ("a.csv", 'anchor,positive\na,b\n"c"d,e\n', ":3: .*expected after"),
        ("a.csv", 'anchor,positive\na,"b\nc,d\n', ":2: unexpected end of data"),
        ("a.tsv", "anchor\tanchor\na\tb\n", ":1: has two columns 'anchor'"),
        ("a.txt", "a\n\nb\n", ":2: 'text' is empty"),
    ],
)
def test_a_bad_row_fails_by_file_and_line(tmp_path, name, content, message):
    path = text_file(tmp_path, name, content)
    with pytest.raises(RowError, match=name.replace(".", r"\.") + message):
        open_rows(path, kind="triplets")


@pytest.mark.parametrize("score", ["high", "nan", "", None, True])
def test_a_score_must_be_a_number(tmp_path, score):
    path = write(tmp_path / "a.jsonl", [{"sentence1": "a", "sentence2": "b", "score": score}])
    with pytest.raises(RowError, match=r"a\.jsonl:1: 'score' is .*, not a number"):
        open_rows(path, kind="scored")


@pytest.mark.parametrize(
    ("record", "kind", "message"),
    [
        ({"x": "a", "y": "b"}, "triplets", "has the columns x, y, which are not known"),
        (
            {"sentence1": "a", "sentence2": "b", "score": 1},
            "triplets",
            "'score' may say that some rows are no positives",
        ),
        ({"source": "a", "target": "b", "score": 1}, "parallel", "To take all of them name the kind: kind: parallel."),
        ({"title": "a", "query": "b", "answer": "c"}, "triplets", "has 'title' and 'query' for 'anchor'"),
        ({"anchor": "a", "positive": "b"}, "scored", "are not known. Name them: columns: {a: ..., b: ..., score"),
    ],
)
def test_columns_that_are_not_known_are_named(tmp_path, record, kind, message):
    for ending in ("jsonl", "parquet"):
        path = write(tmp_path / f"a.{ending}", [record])
        with pytest.raises(RowError) as error:
            open_rows(path, kind=kind)
        assert f"a.{ending}:1: " in str(error.value)
        assert message in str(error.value)


def test_a_named_kind_takes_pairs_in_spite_of_their_scores(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1}])
    assert rows_of({"path": path, "kind": "pairs"}) == [Triplet("a", "b")]
    other = write(tmp_path / "b.jsonl", [{"source": "a", "target": "b", "score": 1}])
    assert rows_of({"path": other, "kind": "parallel"}, "parallel") == [ParallelPair("a", "b")]
    with pytest.raises(SettingError, match="kind 'pairs' gives no scored"):
        rows_of({"path": path, "kind": "pairs"}, "scored")


BAD_LINES = [
    b'{"anchor": "a", "positive": "b"}',
    b'{"anchor": "", "positive": "b"}',
    b'{"anchor": "c", "positive": "d"}',
    b'{"anchor": \xff',
    b'{"anchor": "e", "positive": "f"}',
]


def test_bad_rows_can_be_left_out_and_are_told_of(tmp_path, caplog):
    path = text_file(tmp_path, "a.jsonl", b"\n".join(BAD_LINES))
    rejects = tmp_path / "new" / "rejects.jsonl"
    with caplog.at_level(logging.WARNING):
        rows = open_rows(
            {"sources": [path], "on_error": "skip", "rejects": rejects, "max_bad_fraction": 0.4}, kind="triplets"
        )
    assert list(rows) == [Triplet("a", "b"), Triplet("c", "d"), Triplet("e", "f")]
    assert counts_of(rows) == {"read": 5, "bad": 2, "unlabelled": 0, "rows": 3}
    assert "2 bad rows were left out, see " in caplog.text
    told = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(reject["file"], reject["line"]) for reject in told] == [(str(path), 2), (str(path), 4)]
    assert "'anchor' is empty" in told[0]["reason"]
    assert "not UTF-8" in told[1]["reason"]
    assert [reject["raw"] for reject in told] == [BAD_LINES[1].decode(), '{"anchor": \ufffd']


def test_more_bad_rows_than_allowed_are_an_error_and_still_told_of(tmp_path):
    path, rejects = text_file(tmp_path, "a.jsonl", b"\n".join(BAD_LINES)), tmp_path / "rejects.jsonl"
    with pytest.raises(InputError, match=r"2 of 5 rows are bad, more than max_bad_fraction 0\.39"):
        open_rows(
            {"sources": [path], "on_error": "skip", "rejects": rejects, "max_bad_fraction": 0.39}, kind="triplets"
        )
    assert len(rejects.read_text().splitlines()) == 2


def test_only_the_first_process_writes_the_reject_file(tmp_path):
    path, rejects = text_file(tmp_path, "a.jsonl", b"\n".join(BAD_LINES)), tmp_path / "rejects.jsonl"
    settings = {"sources": [path], "on_error": "skip", "rejects": rejects, "max_bad_fraction": 1}
    assert open_rows(settings, kind="triplets", rank=1).num_rows == 3
    assert not rejects.exists()


def test_an_open_quote_costs_one_line_of_a_csv_and_not_the_rest(tmp_path):
    lines = ["anchor,positive", "a,b", 'c,"d', "e,f", "g,h"]
    path = text_file(tmp_path, "a.csv", "\n".join(lines) + "\n")
    rows = open_rows({"sources": [path], "on_error": "skip", "max_bad_fraction": 0.5}, kind="triplets")
    assert list(rows) == [Triplet("a", "b"), Triplet("e", "f"), Triplet("g", "h")]


def test_a_bad_parquet_row_is_told_of_by_its_number(tmp_path):
    path = write(tmp_path / "a.parquet", [*RECORDS, {"anchor": None, "positive": "b"}])
    rejects = tmp_path / "rejects.jsonl"
    rows = open_rows(
        {"sources": [path], "on_error": "skip", "rejects": rejects, "max_bad_fraction": 0.5}, kind="triplets"
    )
    assert list(rows) == TRIPLETS
    [told] = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert told["line"] == 4
    assert json.loads(told["raw"])["positive"] == "b"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", ""), ("a.tsv", "anchor\tpositive\n"), ("a.tsv", "premise\thypothesis\tlabel\na\tb\t-\n")],
)
def test_a_source_without_rows_is_an_error(tmp_path, name, content):
    with pytest.raises(InputError, match="has no rows to learn from"):
        open_rows(text_file(tmp_path, name, content), kind="triplets")


def test_a_missing_file_is_an_error(tmp_path):
    for name in ("a.jsonl", "a.txt", "a.parquet"):
        with pytest.raises(InputError, match="No such file"):
            open_rows(tmp_path / name, kind="triplets")


def test_a_file_that_changes_is_noticed(tmp_path):
    path = write(tmp_path / "a.jsonl", RECORDS)
    rows = open_rows(path, kind="triplets")
    with path.open("a") as stream:
        stream.write("{}\n")
    os.utime(path, (1, 1))
    with pytest.raises(InputError, match="changed while it was read"):
        next(rows.batches(batch=1, seed=0, epochs=1))
    path = write(tmp_path / "b.jsonl", [{"anchor": "a", "positive": "b"}] * 3)
    batches = open_rows(path, kind="triplets").batches(batch=1, seed=0, epochs=1)
    next(batches)
    path.write_text('{"anchor": "" , "positive": "b"}\n' * 3)
    with pytest.raises(InputError, match="changed while it was read"):
        list(batches)


def test_the_description_has_hashes_and_what_was_chosen(tmp_path):
    path = write(tmp_path / "a.tsv", RECORDS)
    description = open_rows({"path": path, "weight": 2}, kind="triplets").describe()
    assert json.loads(json.dumps(description)) == description
    [source] = description["sources"]
    assert source["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (source["path"], source["format"], source["kind"], source["weight"]) == (str(path), "tsv", "triplets", 2)
    assert source["columns"] == {"anchor": ["anchor"], "positive": ["positive"], "negative": ["negative"]}
    moved = path.rename(tmp_path / "b.tsv")
    assert open_rows({"path": moved, "weight": 2}, kind="triplets").describe()["sha256"] == description["sha256"]
    moved.write_text(moved.read_text().replace("Nobody", "No one"))
    assert open_rows({"path": moved, "weight": 2}, kind="triplets").describe()["sha256"] != description["sha256"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": ["a"], "shufle": True}, "rows.shufle: there is no such setting. Known here: shuffle"),
        ({"sources": [{"path": "a", "wieght": 2}]}, "rows.sources.0.wieght: there is no such setting"),
        ({"sources": [{"path": "a", "weight": 0}]}, "rows.sources.0.weight 0: "),
        ({"sources": [{"path": "a", "columns": {"anker": "x"}}]}, "columns.anker: there is no such field"),
        ({"sources": [{"path": "a", "columns": {"anchor": ["x", "y"]}}]}, "only `negative` may be several"),
        ({"sources": [{"path": "a", "kind": "quads"}]}, "rows.sources.0.kind 'quads': "),
        ({"sources": [{"path": "a", "labels": {"1": "yes"}}]}, "rows.sources.0.labels.1 'yes': "),
        ({"sources": [{"path": "a", "stream": True}]}, "stream and revision are for datasets of the hub"),
        ({"sources": [{"path": "a", "weight": 1}, "b"]}, "some sources have a weight and some have none"),
        ({"sources": ["a", {"path": "hub:b/c", "stream": True}]}, "give each source a weight"),
        ({"sources": []}, "rows.sources: "),
        ({"on_error": "skip"}, "rows.sources: is missing. Give it a value."),
        ({"sources": ["a"], "max_bad_fraction": 2}, "rows.max_bad_fraction 2: "),
        (3, "rows 3: "),
    ],
)
def test_settings_that_do_not_fit_are_named_by_their_path(settings, message):
    with pytest.raises(SettingError) as error:
        RowSettings.of(settings)
    assert message in str(error.value)


def test_a_source_or_a_list_of_sources_stands_for_settings():
    assert RowSettings.of("a.tsv") == RowSettings.of(["a.tsv"]) == RowSettings.of({"path": "a.tsv"})
    assert RowSettings.of(Path("a.tsv")) == RowSettings.of({"sources": [{"path": "a.tsv"}]})
    settings = RowSettings.of(["a.tsv", {"path": "hub:x/y#c@dev"}])
    assert [source.is_hub for source in settings.sources] == [False, True]
    assert RowSettings.of(settings) == settings


def test_real_files_are_read():
    if "TERCET_DATA" not in os.environ:
        pytest.skip("TERCET_DATA is not set")
    folder = Path(os.environ["TERCET_DATA"]) / "train"
    num_rows = {
        "nli_triplets.tsv": 7_537, "nli_triplets_dev.tsv": 3_315, "quora_duplicates.tsv": 30_526,
        "debian_title_body.tsv": 59_459, "wordnet_glosses.tsv": 117_659, "wikiqa_pairs.tsv": 1_040,
        "sentences.tsv": 188_639, "parallel_en_zh.tsv": 109_926, "parallel_en_fr.tsv": 167_078,
    }  # fmt: skip
    for name, num in num_rows.items():
        assert open_rows(folder / name, kind="triplets").num_rows == num, name
    for name, num in (("nli_pairs.tsv", 51_631), ("zh_nli_pairs.tsv", 18_490)):
        assert open_rows(folder / name, kind="nli").num_rows == num
        labels = {}
        for line in (folder / name).read_text().split("\n")[1:-1]:
            premise, _, label = line.split("\t")
            labels.setdefault(premise, set()).add(label)
        anchors = {row.anchor for row in open_rows(folder / name, kind="triplets") if row.negatives}
        assert anchors == {premise for premise, of in labels.items() if of >= {"entailment", "contradiction"}}
    captions = [json.loads(line)["same_image"] for line in (folder / "captions.jsonl").read_text().splitlines()]
    assert open_rows(folder / "captions.jsonl", kind="triplets").num_rows == sum(len(texts) - 1 for texts in captions)


# A share of a source.


def numbered_pairs(num):
    return [{"anchor": f"anchor {i}", "positive": f"positive {i}"} for i in range(num)]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_share_has_about_so_many_rows_and_lies_within_every_larger_share(tmp_path, ending):
    path = write(tmp_path / f"pairs.{ending}", numbered_pairs(400))
    shares = [0.2, 0.4, 0.6, 1.0]
    chosen = [rows_of({"path": path, "share": share}) for share in shares]
    for share, rows in zip(shares, chosen, strict=True):
        assert abs(len(rows) - 400 * share) < 5 * (400 * share * (1 - share)) ** 0.5 + 1
        assert set(rows) <= set(chosen[-1])
    assert set(chosen[0]) < set(chosen[1]) < set(chosen[2]) < set(chosen[3])


def test_what_a_share_leaves_out_is_counted_and_the_rest_can_be_read_in_any_order(tmp_path):
    sets = [{"texts": [f"{i} a", f"{i} b", f"{i} c"]} for i in range(200)]
    rows = open_rows({"path": write(tmp_path / "sets.jsonl", sets), "share": 0.5}, kind="triplets")
    counts = counts_of(rows)
    assert counts["rows"] + counts["not_chosen"] == 400
    assert counts["rows"] == rows.num_rows == len(list(rows))
    seen = {row.anchor for batch in rows.batches(batch=2, seed=1, epochs=1) for row in batch}
    assert seen == {row.anchor for row in rows}


def test_a_share_of_labelled_pairs_keeps_premises_whole(tmp_path):
    labels = ("entailment", "contradiction")
    pairs = [
        {"premise": f"premise {i}", "hypothesis": f"{label} {i}", "label": label}
        for i in range(200)
        for label in labels
    ]
    rows = rows_of({"path": write(tmp_path / "nli.tsv", pairs), "share": 0.5})
    assert 60 < len(rows) < 140
    assert all(row.negatives == (row.positive.replace(*labels),) for row in rows)


def test_rows_and_runs_of_before_are_the_same_where_no_share_is_given(tmp_path):
    path = write(tmp_path / "pairs.jsonl", numbered_pairs(5))
    whole = open_rows(path, kind="triplets").describe()
    assert open_rows({"path": path, "share": 1.0}, kind="triplets").describe() == whole
    assert open_rows({"path": path, "share": 0.9}, kind="triplets").describe()["sha256"] != whole["sha256"]
    assert "share" not in RowSettings.of(path).model_dump(mode="json")["sources"][0]


def test_an_interval_is_what_a_smaller_share_leaves_over(tmp_path):
    path = write(tmp_path / "pairs.jsonl", numbered_pairs(400))
    parts = [rows_of({"path": path, "share": share}) for share in ([0, 0.3], [0.3, 0.8], [0.8, 1.0])]
    assert all(parts)
    assert sum(map(len, parts)) == 400 == len({row for part in parts for row in part})
    assert set(parts[0]) | set(parts[1]) == set(rows_of({"path": path, "share": [0, 0.8]}))


def test_rows_of_one_anchor_stay_together(tmp_path):
    triplets = [
        {"anchor": f"anchor {i}", "positive": f"yes {i} {k}", "negative": f"no {i} {k}"}
        for i in range(100)
        for k in range(3)
    ]
    path = write(tmp_path / "triplets.jsonl", triplets)
    parts = [[row.anchor for row in rows_of({"path": path, "share": share})] for share in ([0, 0.5], [0.5, 1.0])]
    assert 25 < len(set(parts[0])) < 75
    assert not set(parts[0]) & set(parts[1])
    assert sorted(parts[0] + parts[1]) == sorted(row["anchor"] for row in triplets)


@pytest.mark.parametrize(
    "share", [0, -1, 1.5, [0.5, 0.5], [0.6, 0.4], [-0.1, 1], [0, 1.1], [0.5], [0, 0.5, 1], "x", None]
)
def test_a_share_is_above_0_and_at_most_1(tmp_path, share):
    with pytest.raises(SettingError, match="share"):
        rows_of({"path": "x.tsv", "share": share})
