"""Bad input: exit code 2, one line that says what, where and the fix, and a folder that is as it was before."""

import json
import re
import resource
import shutil
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tercet import OutputError

WHAT_WHERE_FIX = re.compile(r"(?![A-Z]\w+Error: )\S.*?: \S.*[.?] [A-Z(].+")


def snapshot(folder):
    """Return every file below a folder with its content and time, and every folder."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None
        for path in folder.rglob("*")
    }


def refused(done, *parts):
    """Check exit code and message of a command that failed as it should."""
    assert "Traceback" not in done.stderr
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    message = done.stderr.strip()
    assert WHAT_WHERE_FIX.fullmatch(message), message
    for part in parts:
        assert part in message


@dataclass
class Case:
    """A command, the files that it meets, and what its message must have."""

    args: str
    parts: list[str]
    files: dict[str, bytes] = field(default_factory=dict)


GOOD = {"in.txt": b"one\ntwo words\n"}
MODEL = "--model {t5} --out out.npy"
PARQUET_END = b"PAR1"

FILES = {
    "a missing file": Case(f"embed no.txt {MODEL}", ["no.txt: No such file"]),
    "a folder": Case(f"embed folder {MODEL}", ["folder: is a folder. Name its files"], {"folder/x": b""}),
    "a file whose name is far too long": Case(f"embed {'x' * 300} {MODEL}", ["name too long"]),
    "an empty file": Case(f"embed in.txt {MODEL}", ["in.txt: is empty"], {"in.txt": b""}),
    "empty standard input": Case(f"embed - {MODEL}", ["is empty"]),
    "a byte order mark alone": Case(f"embed a.txt {MODEL}", ["is empty"], {"a.txt": b"\xef\xbb\xbf"}),
    "a header without rows": Case(f"embed a.csv {MODEL}", ["a.csv: is empty"], {"a.csv": b"text,b\n"}),
    "invalid UTF-8": Case(f"embed a.txt {MODEL}", ["a.txt:2: is not UTF-8 at byte 3"], {"a.txt": b"ok\nabc\xff\n"}),
    "invalid UTF-8 in CSV": Case(
        f"embed a.csv {MODEL}", ["a.csv:3: is not UTF-8"], {"a.csv": b"text\nok\n\xe9t\xe9\n"}
    ),
    "NUL bytes": Case(f"embed a.txt {MODEL}", ["a.txt:3: has a NUL byte"], {"a.txt": b"a\nb\nc\0d\n"}),
    "UTF-16": Case(f"embed a.txt {MODEL}", ["a.txt:1: "], {"a.txt": "one\ntwo\n".encode("utf-16")}),
    "a broken JSON line": Case(
        f"embed a.jsonl {MODEL}", ["a.jsonl:2: is not JSON"], {"a.jsonl": b'{"text": "a"}\n{"text": "b"\n'}
    ),
    "an empty line in JSONL": Case(
        f"embed a.jsonl {MODEL}", ["a.jsonl:2: is not JSON"], {"a.jsonl": b'{"text": "a"}\n\n'}
    ),
    "JSON that is no object": Case(
        f"embed a.jsonl {MODEL}", ["a.jsonl:1: is list, not an object"], {"a.jsonl": b'["a"]\n'}
    ),
    "JSON nested without end": Case(f"embed a.jsonl {MODEL}", ["a.jsonl:1: is not JSON"], {"a.jsonl": b"[" * 100_000}),
    "a text that is null": Case(
        f"embed a.jsonl {MODEL}", ["a.jsonl:1: 'text' is null"], {"a.jsonl": b'{"text": null}\n'}
    ),
    "a text that is a number": Case(
        f"embed a.jsonl {MODEL}",
        ["a.jsonl:2: 'text' is int"],
        {"a.jsonl": b'{"text": "a"}\n{"text": 5}\n'},
    ),
    "half a surrogate pair": Case(
        f"embed a.jsonl {MODEL}", ["a.jsonl:1: ", "surrogate"], {"a.jsonl": b'{"text": "\\ud83d"}\n'}
    ),
    "a missing column": Case(
        f"embed a.csv --column body {MODEL}",
        ["a.csv:2: has no column 'body'", "id, title", "--column"],
        {"a.csv": b"id,title\n1,x\n"},
    ),
    "several columns and none named": Case(
        f"embed a.csv {MODEL}",
        ["a.csv:2: has no column for 'text'", "id, title", "--column"],
        {"a.csv": b"id,title\n1,x\n"},
    ),
    "a column that is missing in one row": Case(
        f"embed a.jsonl --column body {MODEL}",
        ["a.jsonl:2: has no column 'body'"],
        {"a.jsonl": b'{"body": "a"}\n{"title": "b"}\n'},
    ),
    "too few columns in one row": Case(
        f"embed a.csv --column a {MODEL}",
        ["a.csv:3: has 1 columns where the header has 2"],
        {"a.csv": b"a,b\n1,2\n3\n"},
    ),
    "too many columns in one row": Case(
        f"embed a.tsv --column a {MODEL}",
        ["a.tsv:2: has 3 columns where the header has 2"],
        {"a.tsv": b"a\tb\n1\t2\t3\n"},
    ),
    "two columns of one name": Case(
        f"embed a.csv {MODEL}", ["a.csv:1: has two columns 'text'"], {"a.csv": b"text,text\na,b\n"}
    ),
    "a quote that never ends": Case(f"embed a.csv {MODEL}", ["a.csv:2: "], {"a.csv": b'text\n"a\nb\n'}),
    "no Parquet in a .parquet": Case(
        f"embed a.parquet {MODEL}", ["a.parquet: is not a Parquet"], {"a.parquet": bytes(range(256))}
    ),
    "an empty .parquet": Case(f"embed a.parquet {MODEL}", ["a.parquet: "], {"a.parquet": b""}),
    "too long a text": Case(
        f"embed a.txt --on-truncate error {MODEL}",
        ["a.txt: row 3 is longer than 64 tokens. "],
        {"a.txt": b"a\nb\n" + b"word " * 99 + b"\n" + b"word " * 99 + b"\n"},
    ),
    "too long a text in a later shard": Case(
        f"embed a.txt --on-truncate error --shard-texts 2 {MODEL}",
        ["a.txt: row 6 is longer than 64 tokens"],
        {"a.txt": b"a\nb\nc\nd\ne\n" + b"word " * 99 + b"\nf\n"},
    ),
}

TARGETS = {
    "a wrong ending": Case("embed in.txt --model {t5} --out out.pt", ["out.pt: ", ".npy, .parquet, .jsonl"], GOOD),
    "a target in a missing folder": Case(
        "embed in.txt --model {t5} --out no/out.npy", ["no/out.npy: No such file"], GOOD
    ),
    "a target below a file": Case(
        "embed in.txt --model {t5} --out in.txt/out.npy", ["in.txt/out.npy: Not a directory"], GOOD
    ),
    "a target that is a folder": Case(
        "embed in.txt --model {t5} --out out.npy", ["out.npy: is a folder"], {**GOOD, "out.npy/x": b""}
    ),
    "a target where nobody can write": Case(
        "embed in.txt --model {t5} --out /proc/out.npy", ["cannot write /proc/out.npy: "], GOOD
    ),
    "a target whose name is far too long": Case(
        f"embed in.txt --model {{t5}} --out {'x' * 300}.npy", ["name too long"], GOOD
    ),
    "a target that is the input": Case(
        "embed in.jsonl --model {t5} --out ./in.jsonl",
        ["in.jsonl: is the input"],
        {"in.jsonl": b'{"text": "a", "label": 1}\n'},
    ),
    "somebody's folder where shards would go": Case(
        "embed in.txt --model {t5} --out out.npy --shard-texts 1",
        ["out.npy.parts: is in the way"],
        {**GOOD, "out.npy.parts/thesis.txt": b"the only copy"},
    ),
    "somebody's file where shards would go": Case(
        "embed in.txt --model {t5} --out out.npy --shard-texts 1",
        ["out.npy.parts"],
        {**GOOD, "out.npy.parts": b"the only copy"},
    ),
}

MODELS = {
    "a name like an embedded one": Case(
        "embed in.txt --model minlm --out out.npy", ["minlm: ", "Did you mean: minilm"], GOOD
    ),
    "a name like a shape": Case("embed in.txt --model t5-smal --out out.npy", ["t5-smal: ", "random:t5-small"], GOOD),
    "a folder like another one": Case(
        "embed in.txt --model ./my-modle --out out.npy",
        ["./my-modle: ", "Did you mean: my-model"],
        {**GOOD, "my-model/config.json": b"{}"},
    ),
    "a name like nothing": Case(
        "embed in.txt --model acme/no-such-model --out out.npy", ["acme/no-such-model: "], GOOD
    ),
    "a name that the hub cannot have": Case(
        "embed in.txt --model a--b --out out.npy", ["a--b: is no id of a model on the hub"], GOOD
    ),
    "a model name far too long": Case(f"embed in.txt --model {'x' * 300} --out out.npy", ["name too long"], GOOD),
    "a model that is a file": Case("embed in.txt --model ./in.txt --out out.npy", ["./in.txt: is a file"], GOOD),
    "a folder without a model": Case(
        "embed in.txt --model ./empty --out out.npy",
        ["empty: is no model folder"],
        {**GOOD, "empty/x": b""},
    ),
    "a model of an unknown kind": Case(
        "embed in.txt --model ./gpt --set readout=mean --out out.npy",
        ["holds a 'gpt2' model"],
        {**GOOD, "gpt/config.json": b'{"model_type": "gpt2"}'},
    ),
    "a fresh model without tokenizer": Case(
        "embed in.txt --model random:t5-tiny --out out.npy", ["random:t5-tiny: ", "tokenizer"], GOOD
    ),
    "a fresh model of no shape": Case(
        "embed in.txt --model random:t5-smal --tokenizer {t5} --out out.npy",
        ["'t5-smal'", "t5-small"],
        GOOD,
    ),
}

SETTINGS = {
    "an unknown setting": Case(f"embed in.txt --set pooling=mean {MODEL}", ["encoder.pooling: ", "readout"]),
    "a setting without value": Case(f"embed in.txt --set readout {MODEL}", ["--set readout: "]),
    "an unknown readout": Case(f"embed in.txt --set readout=max {MODEL}", ["'max'", "enc-mean"]),
    "a readout that is for T5": Case(
        "embed in.txt --set readout=enc-mean --model {bert} --out out.npy", ["'enc-mean': is for T5"]
    ),
    "a decoder that BERT does not have": Case(
        "embed in.txt --set readout=encdec-first --model {bert} --out out.npy", ["bert"]
    ),
    "a decoder that the checkpoint does not have": Case(
        f"embed in.txt --set readout=encdec-first {MODEL}", ["has no decoder weights", "enc-mean"]
    ),
    "max_tokens that is no number": Case(f"embed in.txt --set max_tokens=many {MODEL}", ["'many'"]),
    "max_tokens without room for text": Case(
        f"embed in.txt --set max_tokens=1 {MODEL}", ["max_tokens 1: ", "leave no room"]
    ),
    "a projection that is no width": Case(f"embed in.txt --set projection=-1 {MODEL}", ["-1"]),
    "normalize that is neither true nor false": Case(
        f"embed in.txt --set normalize=maybe {MODEL}", ["normalize 'maybe': ", "boolean"]
    ),
    "a prompt without slot": Case(f"embed in.txt --set prompt=query {MODEL}", ["'query'", "[X]"]),
    "a prompt that is a number": Case(f"embed in.txt --set prompt=7 {MODEL}", ["prompt 7: "]),
    "fp16 with a T5": Case(f"embed in.txt --precision fp16 {MODEL}", ["'fp16'", "overflows to NaN", "'fast'"]),
    "no dims": Case(f"embed in.txt --dims 0 {MODEL}", ["dims 0: "]),
    "more dims than there are": Case(f"embed in.txt --dims 257 {MODEL}", ["dims 257: ", "1 to 256"]),
    "no tokens in a batch": Case(f"embed in.txt --batch-tokens 0 {MODEL}", ["0: "]),
    "no texts in a shard": Case(f"embed in.txt --shard-texts 0 {MODEL}", ["0: "]),
    "no hits": Case("search a --in in.txt -k 0 --model {t5}", ["k 0: "]),
}


@pytest.fixture
def meet(tercet, tmp_path, models):
    """Return a function that runs a case and checks everything about it."""

    def run(case):
        for name, content in (case.files or GOOD).items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
        before = snapshot(tmp_path)
        args = [arg.format(**models) for arg in case.args.split()]
        refused(tercet(*args), *case.parts)
        assert snapshot(tmp_path) == before

    return run


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_an_input_that_cannot_be_used_is_refused_and_nothing_is_written(meet, case):
    meet(case)


@pytest.mark.parametrize("case", TARGETS.values(), ids=TARGETS)
def test_a_target_that_cannot_be_written_is_refused_before_any_work(meet, case):
    meet(case)


@pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
def test_a_model_that_cannot_be_found_is_refused_with_near_matches(meet, case):
    meet(case)


@pytest.mark.parametrize("case", SETTINGS.values(), ids=SETTINGS)
def test_a_setting_that_does_not_fit_is_refused(meet, case):
    meet(case)


@pytest.mark.parametrize(
    "args", [["embed", "--out", "out.npy"], ["embed", "in.txt"], ["embed", "a", "--no-such"], ["x"]]
)
def test_wrong_usage_ends_with_code_2(tercet, args):
    done = tercet(*args)
    assert done.returncode == 2
    assert "Usage:" in done.stderr


@pytest.mark.parametrize(
    ("args", "known"),
    [
        (["embed", "in.txt", "--format", "xml", "--out", "out.npy"], "parquet"),
        (["embed", "in.txt", "--precision", "int4", "--out", "out.npy"], "exact"),
        (["embed", "in.txt", "--on-truncate", "skip", "--out", "out.npy"], "count"),
        (["evaluate", "--classifier", "svm"], "sklearn"),
        (["export", "--format", "tflite", "--out", "out"], "onnx"),
        (["synthesize", "in.txt", "--strategy", "guess", "--out", "out"], "retrieval"),
    ],
)
def test_a_choice_that_does_not_exist_is_wrong_usage_and_says_which_do(tercet, tmp_path, args, known):
    (tmp_path / "in.txt").write_text("a\n")
    done = tercet(*args)
    assert done.returncode == 2
    assert args[args.index("--out") - 1 if "--out" in args else -1] in done.stderr
    assert known in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt"]


def test_an_old_target_survives_a_failed_run(tercet, tmp_path, models):
    (tmp_path / "in.txt").write_bytes(b"ok\n\xff\n")
    (tmp_path / "out.npy").write_bytes(b"an earlier result")
    refused(tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.npy"), "in.txt:2")
    assert (tmp_path / "out.npy").read_bytes() == b"an earlier result"


def test_parquet_with_a_null_or_with_invalid_text_is_refused(tercet, tmp_path, models):
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "null.parquet")
    invalid = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"text": invalid}), tmp_path / "invalid.parquet")
    before = snapshot(tmp_path)
    for name, part in [
        ("null", "null.parquet:2: 'text' is null"),
        ("invalid", "utf-8"),
    ]:
        refused(tercet("embed", f"{name}.parquet", "--model", models["t5"], "--out", "out.npy"), part)
    assert snapshot(tmp_path) == before


def test_a_parquet_file_that_is_cut_off_is_refused(tercet, tmp_path, models):
    pq.write_table(pa.table({"text": ["some text"] * 1000}), tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[: len(content) // 2])
    done = tercet("embed", "cut.parquet", "--model", models["t5"], "--out", "out.npy")
    refused(done, "cut.parquet")


# A model folder in which one file is broken.

BROKEN = {
    "config.json cut off": ("config.json", b'{"model_type": '),
    "config.json a list": ("config.json", b"[]"),
    "config.json with a nonsense width": ("config.json", b'{"model_type": "t5", "d_model": "wide"}'),
    "weights cut off": ("model.safetensors", None),
    "weights of zeros": ("model.safetensors", bytes(1000)),
    "modules.json an object": ("modules.json", b'{"a": 1}'),
    "modules.json without paths": ("modules.json", b'[{"type": "sentence_transformers.models.Transformer"}]'),
    "modules.json with a path outside": (
        "modules.json",
        b'[{"type": "sentence_transformers.models.Transformer", "path": "../other"}]',
    ),
    "a pooling that is a list": ("1_Pooling/config.json", b"[1]"),
    "a maximal length that is text": ("sentence_bert_config.json", b'{"max_seq_length": "long"}'),
    "a broken tokenizer": ("tokenizer.json", b'{"version": '),
    "a tokenizer that is a number": ("tokenizer.json", b"5"),
}


@pytest.mark.parametrize(("name", "content"), BROKEN.values(), ids=BROKEN)
def test_a_model_folder_with_a_broken_file_is_refused(tercet, tmp_path, models, name, content):
    shutil.copytree(models["t5"], tmp_path / "model")
    file = tmp_path / "model" / name
    file.write_bytes(file.read_bytes()[:5000] if content is None else content)
    (tmp_path / "in.txt").write_bytes(b"one\n")
    before = snapshot(tmp_path)
    refused(tercet("embed", "in.txt", "--model", "./model", "--out", "out.npy"), "model")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
def test_a_model_folder_with_a_missing_file_is_refused(tercet, tmp_path, models, name):
    shutil.copytree(models["t5"], tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    (tmp_path / "in.txt").write_bytes(b"one\n")
    refused(tercet("embed", "in.txt", "--model", "./model", "--out", "out.npy"), "model")


def test_a_model_that_gives_nan_is_refused_by_the_layer(tercet, tmp_path, models, tiny):
    encoder = tiny("bert", readout="mean")
    encoder.tower.backbone.encoder.layer[1].output.dense.weight.data[3, 4] = float("nan")
    encoder.save(tmp_path / "model")
    (tmp_path / "in.txt").write_bytes(b"one\n" * 10)
    before = snapshot(tmp_path)
    for shard in (100, 3):
        args = ["embed", "in.txt", "--model", "./model", "--out", "out.npy", "--shard-texts", shard]
        refused(tercet(*args), "encoder.layer.1.output.dense")
    assert snapshot(tmp_path) == before


# A full disk: no file may grow beyond a limit.

TEXTS = "".join(f"{chr(97 + i % 26)} text of {'xyz'[i % 3] * (1 + i // 26)}\n" for i in range(60)).encode()


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl"])
def test_a_full_disk_leaves_nothing_of_a_target(tercet, tmp_path, models, ending):
    (tmp_path / "in.txt").write_bytes(TEXTS)
    before = snapshot(tmp_path)
    done = tercet("embed", "in.txt", "--model", models["t5"], "--out", f"out.{ending}", max_file_bytes=20_000)
    refused(done, f"cannot write out.{ending}: File too large")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("max_file_bytes", [250, 1_000, 5_000])
def test_a_disk_too_full_for_one_shard_leaves_nothing(tercet, tmp_path, models, max_file_bytes):
    (tmp_path / "in.txt").write_bytes(TEXTS)
    before = snapshot(tmp_path)
    args = ["embed", "in.txt", "--model", models["t5"], "--out", "out.npy", "--shard-texts", "10"]
    refused(tercet(*args, max_file_bytes=max_file_bytes), "File too large")
    assert snapshot(tmp_path) == before


def test_a_disk_without_any_room_leaves_nothing(python, tmp_path, models):
    (tmp_path / "in.txt").write_bytes(TEXTS)
    (tmp_path / "out.npy").write_bytes(b"an earlier result")
    before = snapshot(tmp_path)

    def fill_the_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    args = ["-m", "tercet", "embed", "in.txt", "--model", models["t5"], "--out", "out.npy", "--shard-texts", "10"]
    done = python(*args, folder=tmp_path, preexec_fn=fill_the_disk)
    assert done.returncode == 2
    # libraries that look for a folder for temporary files when they are imported can fail before we do
    assert re.fullmatch(r"(?!\w+Error: ).+\. Check .+\n", done.stderr), done.stderr
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl"])
def test_a_disk_too_full_for_the_target_keeps_whole_shards_for_the_next_run(tercet, tmp_path, models, encoder, ending):
    (tmp_path / "in.txt").write_bytes(TEXTS)
    args = ["embed", "in.txt", "--model", models["t5"], "--out", f"out.{ending}", "--shard-texts", "10"]
    refused(tercet(*args, max_file_bytes=20_000), f"out.{ending}: File too large")
    parts = tmp_path / f"out.{ending}.parts"
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", parts.name}
    assert not list(parts.glob(".*")), "a temporary file was left"
    assert not (parts / f"out.{ending}").exists()
    texts = TEXTS.decode().splitlines()
    for number, file in enumerate(sorted(parts.glob("[0-9]*.npy"))):
        expected = encoder.embed(texts[10 * number : 10 * number + 10])
        np.testing.assert_allclose(np.load(file)[:, : encoder.dim], expected, atol=1e-5)
    assert number == 5
    assert tercet(*args).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", f"out.{ending}", f"out.{ending}.sha256"}


@pytest.mark.parametrize("max_file_bytes", [100, 5_000, 100_000])
def test_a_full_disk_leaves_nothing_of_a_saved_model_and_keeps_the_old_one(tmp_path, encoder, tiny, max_file_bytes):
    tiny("bert", readout="mean").save(tmp_path / "old")
    before = snapshot(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, hard))
    try:
        for name in ("old", "new"):
            with pytest.raises(OutputError, match=f"cannot write .*/{name}: .*File too large"):
                encoder.save(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert snapshot(tmp_path) == before


def test_every_file_of_a_saved_model_can_be_read_by_those_who_may_read_the_folder(models):
    modes = {path.name: path.stat().st_mode & 0o777 for path in models["projected"].rglob("*") if path.is_file()}
    assert "model.safetensors" in modes
    assert len(set(modes.values())) == 1, modes


def test_standard_input_that_does_not_fit_on_the_disk_is_refused(tercet, tmp_path, models):
    args = ["embed", "-", "--model", models["t5"], "--out", "out.npy"]
    refused(tercet(*args, stdin=TEXTS * 30, max_file_bytes=20_000), "-: cannot be copied")
    assert snapshot(tmp_path) == {}


def test_a_query_that_is_no_text_is_refused(tercet, tmp_path, models):
    (tmp_path / "in.txt").write_bytes(b"one\n")
    assert json.loads(json.dumps("\udcff")) == "\udcff"  # it arrives as it is
    done = tercet("search", "\udcff", "--in", "in.txt", "--no-cache", "--model", models["t5"])
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("text 0: is not Unicode")
