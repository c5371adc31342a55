"""`tercet data fetch` against a local server that speaks as much of the hub's language as that needs."""

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile

import pytest
from dataset_hub import COMMIT, Hub, card, jsonl, parquet

from tercet.data.sets.catalogue import FILES, NOT_ON_HUB, RowsFile
from tercet.evaluation.evaluate import evaluate

pytest.importorskip("datasets")

WORDS = ["music", "snow", "dogs", "market", "stage", "river", "fence", "crowd"]
ARCHIVE = "princeton-nlp/datasets-for-simcse"


def sentence(i):
    return f"The {WORDS[i % 8]} is near the {WORDS[(i * 3 + i // 8) % 8]}."


def pairs(num=6, **more):
    rows = [{"sentence1": sentence(i), "sentence2": sentence(i + i % 3), "score": i % 6 * 0.7} for i in range(num)]
    return [{**row, **more} for row in rows]


def labelled(columns, num_labels=2, num=24):
    return [
        {column: sentence(i + 5 * j) for j, column in enumerate(columns)} | {"label": i % num_labels}
        for i in range(num)
    ]


def tar(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def glue():
    pair, labels = ("sentence1", "sentence2"), {"mnli": 3}
    columns = {
        "cola": ("sentence",),
        "sst2": ("sentence",),
        "mrpc": pair,
        "stsb": pair,
        "qqp": ("question1", "question2"),
        "mnli": ("premise", "hypothesis"),
        "qnli": ("question", "sentence"),
        "rte": pair,
    }
    files, configs = {}, {}
    for config, names in columns.items():
        splits = (
            ("train", "validation_matched", "validation_mismatched") if config == "mnli" else ("train", "validation")
        )
        rows = labelled(names, labels.get(config, 2))
        if config == "stsb":
            rows = [{**row, "label": i % 6 * 0.5} for i, row in enumerate(rows)]
        files |= {f"{config}/{split}-00000-of-00001.parquet": parquet(rows) for split in splits}
        configs[config] = {split: f"{config}/{split}-*" for split in splits}
    return files | {"README.md": card(configs)}


def senteval():
    lines = "".join(f"{sentence(i)} caf\xe9\n" for i in range(24)).encode("latin-1")
    sst = "".join(f"{sentence(i)}\t{i % 2}\n" for i in range(24)).encode()
    trec = "".join(f"{['HUM:ind', 'LOC:city'][i % 2]} {sentence(i)}\n" for i in range(24)).encode()
    mrpc = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n" + "".join(
        f"{i % 2}\t1\t2\t{sentence(i)}\t{sentence(i + 1)}\r\n" for i in range(24)
    )
    sick = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n" + "".join(
        f"{i}\t{sentence(i)}\t{sentence(i + i % 3)}\t{1 + i % 5}\tNEUTRAL\n" for i in range(6)
    )
    contents = {"SST": sst, "TREC": trec, "MRPC": mrpc.encode(), "SICK": sick.encode()}
    members = [file.member for files in FILES.values() for file in files if not isinstance(file, RowsFile)]
    return tar({member: contents.get(member.split("/")[0], lines) for member in members})


def everything():
    """Return a small dataset for every entry of the table, in the forms that are met on the hub."""
    more = {"genre": "main-news", "dataset": "headlines", "year": "2015", "sid": "0001", "split": "test"}
    repos = {f"mteb/sts{year}-sts": {"test.jsonl.gz": gzip.compress(jsonl(pairs()))} for year in range(12, 17)}
    repos["mteb/stsbenchmark-sts"] = {
        f"{split}.jsonl": jsonl(pairs(12, **more, score=4.5)[:6] + pairs(6, **more)) for split in ("validation", "test")
    }
    repos["mteb/STSB"] = {f"data/{split}-00000-of-00001.parquet": parquet(pairs()) for split in ("validation", "test")}
    repos["mteb/biosses-sts"] = {"test.jsonl": jsonl(pairs())}
    repos["sentence-transformers/askubuntu"] = {
        "test.jsonl": jsonl(
            [
                {"query": "a\ttitle", "positive": [sentence(1)], "negative": [sentence(2), sentence(1)]},
                {"query": "no duplicate", "positive": [], "negative": [sentence(3)]},
                {"query": sentence(4), "positive": [sentence(4), sentence(5)], "negative": [sentence(6)]},
            ]
        )
    }
    repos["tasksource/pit"] = {"data/test-00000-of-00001.parquet": parquet(labelled(("text_a", "text_b")))}
    repos["davidstap/NTREX"] = {
        "data/eng_Latn/newstest2019-src.eng.txt": "".join(f"{sentence(i)}\n" for i in range(6)).encode(),
        "data/zho_Hans/newstest2019-ref.zho-CN.txt": "".join(f"{sentence(i)} 日本語\n" for i in range(6)).encode(),
        "README.md": card({name: {"test": f"data/{name}/*"} for name in ("eng_Latn", "zho_Hans")}),
    }
    repos["nyu-mll/glue"] = glue()
    repos[ARCHIVE] = {"senteval.tar": senteval()}
    return repos


def start(port, cache, *args):
    left_out = ("HF_HUB_OFFLINE", "TERCET_DATA", "HF_TOKEN", "HF_HUB_CACHE", "HF_DATASETS_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(cache), "HF_UPDATE_DOWNLOAD_COUNTS": "0"}
    command = [sys.executable, "-m", "tercet", "data", "fetch", *map(str, args)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fetch(port, cache, *args):
    process = start(port, cache, *args)
    stdout, stderr = process.communicate(timeout=240)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def files_of(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".checksums.json.lock"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def fetched(tmp_path_factory):
    """Return the folder and the outcome of a fetch of everything."""
    folder = tmp_path_factory.mktemp("fetched")
    with Hub(everything()) as hub:
        done = fetch(
            hub.server_port, folder / "hf", "sts,transfer", "sentglue,domain,zh", "retrieval", "--data", folder / "eval"
        )
    assert done.returncode == 0, done.stderr
    return folder / "eval", done


def test_every_file_has_its_checksum_and_its_source(fetched):
    files = files_of(fetched[0])
    recorded = json.loads(files.pop("checksums.json"))["files"]
    assert {path: entry["sha256"] for path, entry in recorded.items()} == {
        path: hashlib.sha256(content).hexdigest() for path, content in files.items()
    }
    assert files.keys() == {file.path for files in FILES.values() for file in files}
    assert recorded["glue/MNLI/dev_mismatched.tsv"] == {
        "sha256": hashlib.sha256(files["glue/MNLI/dev_mismatched.tsv"]).hexdigest(),
        "num_rows": 24,
        "dataset": "nyu-mll/glue",
        "config": "mnli",
        "part": "validation_mismatched",
        "revision": COMMIT,
    }
    assert recorded["senteval/MRPC/msr_paraphrase_test.txt"]["num_rows"] == 24


def test_the_command_says_what_is_not_on_the_hub_and_which_counts_are_not_the_known_ones(fetched):
    output = fetched[1].stdout
    for task, reason in NOT_ON_HUB.items():
        assert f"not on the hub: {task} ({reason})" in output
    assert "note: senteval/SICK/SICK_test_annotated.txt: 6 rows, 4,927 were expected" in output
    assert f"{sum(1 for path in files_of(fetched[0])) - 1} files written, 0 unchanged" in output


def test_texts_come_through_with_their_encoding_and_without_their_tabs(fetched):
    files = files_of(fetched[0])
    assert "caf\xe9\n".encode("latin-1") in files["senteval/MR/rt-polarity.pos"]
    assert files["askubuntu/text_tokenized.txt"].decode().splitlines()[0] == "1-0\ta title"
    assert files["askubuntu/test.txt"].decode().splitlines()[:2] == ["1-0\t1-1\t1-1 1-2 1-3", "2-0\t\t2-1"]
    assert files["senteval/STS/STS12-en-test/STS.gs.joined.txt"].decode().split() == [
        "0",
        "0.7",
        "1.4",
        "2.1",
        "2.8",
        "3.5",
    ]


def test_an_encoder_is_evaluated_on_what_was_fetched(fetched, tiny):
    tasks = "sts,STSB-dev,transfer,sentglue,domain,zh,ZH-STSB-dev,retrieval,geometry"
    results = evaluate(tiny(), tasks=tasks, data=fetched[0])
    assert results["missing"].keys() == NOT_ON_HUB.keys()
    assert results["tasks"].keys() == FILES.keys()
    assert "joined in one file" in results["tasks"]["STS14"]["note"]
    assert results["tasks"]["AskUbuntu"]["num"] == 2
    recorded = json.loads((fetched[0] / "checksums.json").read_text())["files"]
    for result in results["tasks"].values():
        assert all(recorded[path]["sha256"] == digest for path, digest in result["data"].items())


def test_a_file_with_other_content_is_replaced_only_by_force(tmp_path):
    folder, cache = tmp_path / "eval", tmp_path / "hf"
    with Hub(everything()) as hub:
        first = fetch(hub.server_port, cache, "BIOSSES", "STS12", "--data", folder)
        whole = files_of(folder)
        golds = folder / "senteval/STS/STS12-en-test/STS.gs.joined.txt"
        golds.write_text("mine\n")
        golds.with_name("STS.input.joined.txt").unlink()
        (folder / "biosses/pairs.tsv").unlink()
        refused = fetch(hub.server_port, cache, "STS12,BIOSSES", "--data", folder)
        kept = files_of(folder)
        forced = fetch(hub.server_port, cache, "STS12", "BIOSSES", "--data", folder, "--force")
    assert (first.returncode, refused.returncode, forced.returncode) == (0, 2, 0)
    assert "STS.gs.joined.txt. Use --force" in refused.stderr
    changed = {"senteval/STS/STS12-en-test/STS.gs.joined.txt": b"mine\n"}
    lost = "senteval/STS/STS12-en-test/STS.input.joined.txt"  # belongs to the gold file, so it is not written alone
    assert kept == {path: content for path, content in whole.items() if path != lost} | changed
    assert files_of(folder) == whole
    assert "2 files written, 1 unchanged" in forced.stdout


def test_an_unknown_dataset_stops_the_fetch_and_what_came_before_stays(tmp_path):
    repos = everything()
    del repos["mteb/biosses-sts"]
    with Hub(repos) as hub:
        done = fetch(hub.server_port, tmp_path / "hf", "zh,BIOSSES,STS12", "--data", tmp_path / "eval")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("mteb/biosses-sts: no dataset of that name on http")
    assert files_of(tmp_path / "eval").keys() == {"zh_stsb/sts-b-test.txt", "zh_stsb/sts-b-dev.txt", "checksums.json"}


@pytest.mark.parametrize(("task", "cut"), [("STS12", "test.jsonl.gz"), ("SICK-R", "senteval.tar")])
def test_a_download_that_breaks_off_writes_nothing(tmp_path, task, cut):
    with Hub(everything(), cut=cut) as hub:
        done = fetch(hub.server_port, tmp_path / "hf", task, "--data", tmp_path / "eval")
    assert done.returncode == 2
    assert "did not give it" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "eval").exists()


def test_an_archive_without_a_file_is_named(tmp_path):
    repos = {ARCHIVE: {"senteval.tar": tar({"CR/custrev.neg": b"bad .\n"})}}
    with Hub(repos) as hub:
        done = fetch(hub.server_port, tmp_path / "hf", "CR", "--data", tmp_path / "eval")
    assert done.returncode == 2
    assert "senteval.tar does not give CR/custrev.pos" in done.stderr
    assert not (tmp_path / "eval").exists()


def test_a_killed_fetch_leaves_whole_files_and_the_next_one_goes_on(tmp_path):
    folder, cache = tmp_path / "eval", tmp_path / "hf"
    with Hub(everything(), wait="mteb/biosses-sts") as hub:
        process = start(hub.server_port, cache, "STS12,BIOSSES", "--data", folder)
        assert hub.asked.wait(120)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    left = files_of(folder)
    recorded = json.loads(left["checksums.json"])["files"]
    assert recorded.keys() == left.keys() - {"checksums.json"} == {file.path for file in FILES["STS12"]}
    assert all(hashlib.sha256(left[path]).hexdigest() == entry["sha256"] for path, entry in recorded.items())
    with Hub(everything()) as hub:
        again = fetch(hub.server_port, cache, "STS12,BIOSSES", "--data", folder)
    assert "1 files written, 2 unchanged" in again.stdout


def test_without_a_network_the_command_says_so(tmp_path):
    done = fetch(9, tmp_path / "hf", "BIOSSES", "--data", tmp_path / "eval")
    assert done.returncode == 2
    assert "mteb/biosses-sts: not on this machine, and http://127.0.0.1:9 did not give it" in done.stderr
    assert "Check the network" in done.stderr
    assert not (tmp_path / "eval").exists()
