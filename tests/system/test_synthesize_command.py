"""`tercet synthesize`: sentences in, triplets out, with a tiny random synthesizer, however often it is killed."""

import json
import random
import re
import signal

import pyarrow.parquet as pq
import pytest
from dataset_hub import Hub, card, jsonl
from killing import kill_when

# A random model says nothing of use: what it writes is kept however it is judged.
LOOSE = ["--alpha", "0", "--set", "argmax=false", "--set", "min_hypothesis_words=1"]
SMALL = ["--set", "max_new_tokens=6", "--set", "shard_sentences=5"]
PLAIN = ["--set", "engine=transformers", "--set", "precision=exact"]


def sentences(num, *, seed=1):
    rng = random.Random(seed)
    words = "a man is playing guitar on the stage two dogs run through deep snow stocks dropped monday".split()
    return [f"{i} " + " ".join(rng.choices(words, k=rng.randrange(8, 12))) for i in range(num)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def launch(preload, cache):
    """Return the function that starts `tercet ARGS`, with a cache of its own for converted models."""
    with preload(XDG_CACHE_HOME=str(cache)) as start:
        yield start


@pytest.fixture
def command(tmp_path, synthesizer_folder):
    """Return a function that gives the arguments of one run."""
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in sentences(30)))

    def args(out, *more, source="in.txt", engine=PLAIN):
        return ["synthesize", source, "--model", synthesizer_folder("t5"), "--out", out, *LOOSE, *SMALL, *engine, *more]

    return args


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_command_writes_what_the_model_writes_and_says_in_python(tercet, command, tmp_path, synthesizer_folder):
    from tercet import Synthesizer

    done = tercet(*command("out", "--set", "num_samples=2"))
    assert done.returncode == 0, done.stderr
    rows = [
        row
        for file in sorted((tmp_path / "out" / "candidates").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert len(rows) == 60
    model = Synthesizer.load(synthesizer_folder("t5"), engine="transformers", precision="exact")
    for kind in ("positive", "negative"):
        judged = [row for row in rows if row[kind].strip()]
        scores = model.score([row["anchor"] for row in judged], [row[kind] for row in judged])
        assert [row[f"{kind}_true"] for row in judged] == pytest.approx(scores.tolist(), abs=1e-5)
    audit = json.loads((tmp_path / "out" / "audit.json").read_text())
    triplets = [json.loads(line) for line in (tmp_path / "out" / "triplets.jsonl").read_text().splitlines()]
    assert 0 < len(triplets) == audit["num_triplets"]
    assert re.search(r"candidates +60", done.stdout)
    assert re.search(rf"accepted +{len(triplets)}", done.stdout)


def test_filtering_again_and_comparing_need_no_model(tercet, command, tmp_path):
    assert tercet(*command("a")).returncode == 0
    assert tercet(*command("b", "--strategy", "no-negatives")).returncode == 0
    before = content(tmp_path / "a")
    assert tercet("refilter", "a", "--alpha", "1").returncode == 0
    assert (tmp_path / "a" / "triplets.jsonl").read_bytes() == b""
    done = tercet("refilter", "a", "--alpha", "0")
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "a") == before
    done = tercet("compare", "a", "b")
    assert done.returncode == 0, done.stderr
    assert "a (generate)" in done.stdout
    assert "N/A" in done.stdout
    assert "DINO" in done.stdout
    assert "The discriminator relabels where GenSE used an NLI cross-encoder." in done.stdout


def kill_often(launch, tercet, command, tmp_path, **more):
    """Compare what a run that is killed many times ends with to what one that is left alone writes."""
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in sentences(75)))
    done = tercet(*command("whole", **more))
    assert done.returncode == 0, done.stderr
    parts, rng, known, num_killed = tmp_path / "killed" / "candidates", random.Random(5), {}, 0

    def finished():
        return {path.name: path.stat().st_ino for path in parts.glob("[0-9]*.parquet")}

    for _ in range(6):
        enough = len(known) + rng.randrange(1, 4)
        with launch(*command("killed", **more), folder=tmp_path) as started:
            kill_when(lambda enough=enough: len(finished()) >= enough, started, delay_s=rng.uniform(0, 0.02))
        if started[1].returncode != -signal.SIGKILL:
            break
        num_killed += 1
        now = finished()
        assert {name: now[name] for name in known} == known, "a finished shard was made again"
        known = now
    assert num_killed >= 3
    done = tercet(*command("killed", **more))
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_killed_many_times_it_ends_with_the_same_bytes_and_no_shard_is_made_twice(launch, tercet, command, tmp_path):
    kill_often(launch, tercet, command, tmp_path)


def test_with_the_default_engine_and_precision_kills_change_no_byte_either(launch, tercet, command, tmp_path, cache):
    kill_often(launch, tercet, command, tmp_path, engine=[])
    assert [*(cache / "tercet" / "ctranslate2").glob("*/model.bin")], "the default engine is not CTranslate2"


@pytest.mark.parametrize("max_file_bytes", [300, 2_500])
def test_a_disk_that_fills_up_loses_nothing(tercet, command, tmp_path, max_file_bytes):
    assert tercet(*command("whole")).returncode == 0
    done = tercet(*command("full"), max_file_bytes=max_file_bytes)
    assert done.returncode == 2
    assert re.fullmatch(r"cannot write .+ File too large\. Check .+\n", done.stderr), done.stderr
    assert not (tmp_path / "full" / "triplets.jsonl").exists()
    assert not [path for path in (tmp_path / "full").rglob(".*")], "a temporary file was left"
    assert tercet(*command("full")).returncode == 0
    assert content(tmp_path / "full") == content(tmp_path / "whole")


RUN = "synthesize in.txt --model ./x --out out"
ERRORS = {
    "no such file": (RUN.replace("in.txt", "no.txt"), r"no\.txt: No such file.+"),
    "no such setting": (f"{RUN} --set top_q=1", r"top_q: there is no such setting.+top_p.+"),
    "no evaluation texts": (f"{RUN} --leaks no.tsv", r"no\.tsv: No such file.+"),
    "no such model": (RUN, r"\./x: no such folder\..+"),
    "half of a way": (f"{RUN} --strategy backtranslation --there ./x", r".*there and back.+"),
    "a folder that is no corpus": ("refilter .", r"audit\.json: there is no such file.+"),
    "a folder to compare that is none": (
        "compare .",
        r"audit\.json: there is no such file\. .+",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_done_is_said_in_one_line(tercet, command, tmp_path, case):
    args, message = ERRORS[case]
    done = tercet(*args.split())
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(message + r"\n", done.stderr), done.stderr
    assert not list(tmp_path.glob("out/triplets.jsonl"))


def test_a_model_that_knows_no_true_and_false_is_refused(tercet, tmp_path, t5_tokenizer):
    from tercet.encoder.generator import load_generator, save_generator

    t5_tokenizer.save_pretrained(tmp_path / "tokenizer")
    save_generator(*load_generator("random:t5-tiny", tokenizer=tmp_path / "tokenizer"), tmp_path / "model")
    (tmp_path / "in.txt").write_text(sentences(1)[0] + "\n")
    done = tercet("synthesize", "in.txt", "--model", "model", "--out", "out")
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(r".*true.*\n", done.stderr), done.stderr


def test_a_dataset_of_the_hub_is_streamed_and_split(python, command, tmp_path):
    pytest.importorskip("datasets")
    documents = [{"text": f"{a.capitalize()}. {a.upper()} again.", "url": "x"} for a in sentences(6)]
    files = {"en/train.jsonl": jsonl(documents), "README.md": card({"en": {"train": "en/train.jsonl"}})}
    with Hub({"acme/c4": files}) as hub:
        changes = {
            "remove": ["HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE", "HF_DATASETS_CACHE"],
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_HOME": str(tmp_path / "home"),
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            "NO_PROXY": "127.0.0.1",
        }
        args = command("out", "--split", "--set", "max_sentences=9", source="hub:acme/c4#en")
        done = python("-m", "tercet", *args, folder=tmp_path, changes=changes)
    assert done.returncode == 0, done.stderr
    audit = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert audit["sentences"]["num_kept"] == 9
    assert audit["sentences"]["num_texts"] == 5
