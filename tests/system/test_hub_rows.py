"""Rows from datasets of the hub, fetched or streamed, against a small hub on this machine."""

import io
import json

import pytest
from dataset_hub import COMMIT, Hub, card, jsonl

datasets = pytest.importorskip("datasets")

NUM = 60
TRIPLETS = [{"anchor": f"a{i}", "positive": f"p{i}", "negative": f"n{i}"} for i in range(NUM)]
LABELLED = [{"premise": f"p{i // 3}", "hypothesis": f"h{i}", "label": (0, 1, 2)[i % 3] if i else -1} for i in range(30)]


def with_class_labels(records):
    """Return Parquet whose labels are numbers with names, as most NLI datasets of the hub have them."""
    names = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    stream = io.BytesIO()
    datasets.Dataset.from_list(records).cast_column("label", names).to_parquet(stream)
    return stream.getvalue()


@pytest.fixture(scope="module")
def hub():
    files = {
        "triplet/train.jsonl": jsonl(TRIPLETS),
        "triplet/dev.jsonl": jsonl(TRIPLETS[:7]),
        "bad/train.jsonl": jsonl([*TRIPLETS[:9], {**TRIPLETS[9], "anchor": ""}]),
        "README.md": card(
            {
                "triplet": {"train": "triplet/train.jsonl", "dev": "triplet/dev.jsonl"},
                "bad": {"train": "bad/train.jsonl"},
            }
        ),
    }
    classes = {"data/train-00000-of-00001.parquet": with_class_labels(LABELLED)}
    with Hub({"acme/nli": files, "acme/classes": classes}) as hub:
        yield hub


SCRIPT = """
import faulthandler, json, sys
faulthandler.dump_traceback_later(100, exit=True)
from dataclasses import astuple
from itertools import islice
from tercet.errors import TercetError
from tercet.data.feeding.sources import open_rows

def answer(asked):
    rows = open_rows(asked["rows"], kind=asked.get("kind", "triplets"))
    whole = rows.batches(batch=4, seed=1, epochs=asked.get("epochs"))
    states, batches = [whole.state()], []
    for batch in islice(whole, asked.get("num", 0)):
        batches.append([astuple(row) for row in batch])
        states.append(whole.state())
    resumed = []
    for state in states[:: asked.get("every", 1)]:
        rest = open_rows(asked["rows"], kind=asked.get("kind", "triplets")).batches(
            batch=4, seed=1, epochs=asked.get("epochs"), state=json.loads(json.dumps(state))
        )
        resumed.append([[astuple(row) for row in batch] for batch in islice(rest, len(batches) - state["done"])])
    described = rows.describe()
    return {
        "num_rows": rows.num_rows, "num_batches": whole.num_batches, "batches": batches, "resumed": resumed,
        "describe": described, "rows": [astuple(row) for row in rows] if asked.get("all") else None,
    }

for line in sys.stdin:
    try:
        print(json.dumps(answer(json.loads(line))), flush=True)
    except TercetError as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
"""


@pytest.fixture(scope="module")
def answers(hub, python, tmp_path_factory):
    """Return what a process that uses our hub answers to QUESTIONS."""
    folder = tmp_path_factory.mktemp("hub-rows")
    changes = {
        "remove": ["HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "HF_DATASETS_CACHE"],
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(folder / "home"),
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "NO_PROXY": "127.0.0.1",
    }
    lines = "".join(json.dumps(question) + "\n" for question in QUESTIONS.values())
    done = python("-c", SCRIPT, folder=folder, changes=changes, input=lines)
    assert done.returncode == 0, done.stderr
    return dict(zip(QUESTIONS, map(json.loads, done.stdout.splitlines()), strict=True))


STREAM = {"path": "hub:acme/nli#triplet", "stream": True}
QUESTIONS = {
    "fetched": {"rows": "hub:acme/nli#triplet", "epochs": 2, "num": 30, "every": 7},
    "split": {"rows": "hub:acme/nli#triplet@dev", "all": True},
    "pairs": {"rows": "hub:acme/classes", "kind": "nli", "all": True},
    "grouped": {"rows": "hub:acme/classes", "all": True},
    "stream": {"rows": {"sources": [STREAM], "shuffle_buffer": 16}, "num": 40, "every": 9},
    "mixed": {
        "rows": [{**STREAM, "weight": 3}, {"path": "hub:acme/nli#triplet@dev", "weight": 1}],
        "num": 20,
        "every": 6,
    },
    "epochs of a stream": {"rows": [STREAM], "epochs": 1},
    "grouped stream": {"rows": {"path": "hub:acme/classes", "stream": True}},
    "streamed pairs": {"rows": {"path": "hub:acme/classes", "stream": True}, "kind": "nli", "num": 7, "every": 3},
    "no split": {"rows": "hub:acme/nli#triplet@test"},
    "no dataset": {"rows": "hub:acme/none"},
    "bad": {"rows": "hub:acme/nli#bad"},
    "skipped": {"rows": {"sources": ["hub:acme/nli#bad"], "on_error": "skip", "max_bad_fraction": 0.2}, "all": True},
    "no name": {"rows": "hub:acme/nli#"},
}


def tuples(records):
    return [[record["anchor"], record["positive"], [record["negative"]]] for record in records]


def test_a_fetched_dataset_has_epochs_and_goes_on_anywhere(answers):
    got = answers["fetched"]
    assert (got["num_rows"], got["num_batches"]) == (NUM, 30)
    for epoch in (got["batches"][:15], got["batches"][15:]):
        assert sorted(row for batch in epoch for row in batch) == sorted(tuples(TRIPLETS))
    assert got["resumed"] == [got["batches"][i:] for i in range(0, 31, 7)]
    [source] = got["describe"]["sources"]
    assert source["revision"] == COMMIT
    assert len(source["sha256"]) == 64


def test_a_split_is_named_behind_an_at_sign(answers):
    assert answers["split"]["rows"] == tuples(TRIPLETS[:7])


def test_numbered_labels_get_their_names_and_may_be_missing(answers):
    names = ("entailment", "neutral", "contradiction")
    expected = [[r["premise"], r["hypothesis"], names[r["label"]]] for r in LABELLED if r["label"] >= 0]
    assert answers["pairs"]["rows"] == expected
    assert answers["pairs"]["describe"]["sources"][0]["num_unlabelled"] == 1
    assert answers["grouped"]["rows"] == [[f"p{i}", f"h{3 * i}", [f"h{3 * i + 2}"]] for i in range(1, 10)]


def test_labelled_pairs_of_a_stream_are_not_grouped_but_can_be_used_as_they_are(answers):
    assert "SettingError: hub:acme/classes: grouping by premise" in answers["grouped stream"]["error"]
    got = answers["streamed pairs"]
    rows = {tuple(row) for batch in got["batches"] for row in batch}
    assert len(rows) == 28
    assert rows < {tuple(row) for row in answers["pairs"]["rows"]}
    assert got["resumed"] == [got["batches"][i:] for i in range(0, 8, 3)]


def test_a_stream_has_no_end_and_goes_on_anywhere(answers):
    got = answers["stream"]
    assert got["num_rows"] is got["num_batches"] is None
    assert got["resumed"] == [got["batches"][i:] for i in range(0, 41, 9)]
    rows = [row for batch in got["batches"] for row in batch]
    assert sorted(rows[:NUM]) == sorted(rows[NUM : 2 * NUM]) == sorted(tuples(TRIPLETS))
    assert sorted(rows[:16]) == sorted(tuples(TRIPLETS[:16])), "a buffer at a time"
    assert rows[:NUM] != rows[NUM : 2 * NUM]
    assert got["describe"]["sources"][0]["num_read"] == NUM
    assert "has none" in answers["epochs of a stream"]["error"]


def test_a_stream_is_mixed_with_other_sources_by_weight(answers):
    got = answers["mixed"]
    assert got["resumed"] == [got["batches"][i:] for i in range(0, 21, 6)]
    dev = tuples(TRIPLETS[:7])
    assert sum(row in dev for batch in got["batches"] for row in batch) > 15, "7 in 60 if they were not mixed in"


def test_what_the_hub_does_not_have_is_named(answers):
    assert "InputError: acme/nli: " in answers["no split"]["error"]
    assert "test" in answers["no split"]["error"]
    assert answers["no dataset"]["error"].startswith("InputError: acme/none: no dataset of that name on http")
    assert "SettingError: hub:acme/nli#: is no name of a dataset" in answers["no name"]["error"]


def test_a_bad_row_of_a_dataset_is_named_by_its_number(answers):
    assert "RowError: hub:acme/nli#bad@train:10: 'anchor' is empty" in answers["bad"]["error"]
    assert answers["skipped"]["rows"] == tuples(TRIPLETS[:9])
