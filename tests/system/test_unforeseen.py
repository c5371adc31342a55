"""One boundary for errors: whatever a file holds, the command line says one line, and never shows a traceback."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tercet import cli
from tercet.storage.locks import hold_target

NESTED, DIGITS = "[" * 900 + "]" * 900, "9" * 5000
LETTERS = itertools.pairwise("abcdefghijkl")
LAUGHS = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}]\n" for a, b in LETTERS)
TMX = '<?xml version="1.0" encoding="utf-7"?><tmx><header srclang="en"/><body></body></tmx>'


ENTITIES = '<!DOCTYPE tmx [<!ENTITY x "y">]><tmx><header srclang="en"/><body>&x;</body></tmx>'


def modules(folder, **values):
    """Change the second module of a model."""
    first, second, *others = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([first, {**second, **values}, *others]))


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


# what is put where, and the command that meets it
CASES = {
    "nested JSON in rows": ({"a.jsonl": '{"text": ' + NESTED + "}\n"}, "embed a.jsonl"),
    "a number of 5,000 digits in rows": ({"a.jsonl": '{"text": ' + DIGITS + "}\n"}, "embed a.jsonl"),
    "TMX in UTF-7": ({"a.tmx": TMX}, "evaluate --tasks parallel:a.tmx"),
    "an audit that is a list": ({"made/audit.json": "[]"}, "refilter made"),
    "an audit that is empty": ({"made/audit.json": "{}"}, "refilter made"),
    "an audit of lists": ({"made/audit.json": '{"strategy": [], "seed": 1, "filters": []}'}, "refilter made"),
    "nested JSON in an audit": ({"made/audit.json": NESTED}, "compare made made"),
    "results that are null": ({"r.json": "null"}, "report r.json --out r.html"),
    "nested JSON in results": ({"r.json": NESTED}, "report r.json --out r.html"),
    "nested JSON in a log": ({"run/metrics.jsonl": '{"a": ' + NESTED + "}\n"}, "report run --out r.html"),
    "a recipe that is nested": ({"r.yaml": NESTED}, "train r.yaml --run run"),
    "a recipe that expands": (
        {"r.yaml": LAUGHS},
        "train r.yaml --run run",
    ),
    "a recipe that contains itself": ({"r.yaml": "a: &a [*a]\n"}, "train r.yaml --run run"),
    "a recipe that is a device": ({"r.yaml": "/dev/zero"}, "train r.yaml --run run"),
    "a task file with nested JSON": ({"t.jsonl": '{"a": "x", "score": ' + NESTED + "}\n"}, "evaluate --tasks t.jsonl"),
    "a score of 5,000 digits": ({"t.tsv": f"a\tb\tscore\nx\ty\t{DIGITS}\n"}, "evaluate --tasks t.tsv"),
    "a setting that is nested": ({}, f"embed in.txt --set prompt={NESTED}"),
    "a setting of 5,000 digits": ({}, f"embed in.txt --set max_tokens={DIGITS}"),
    "a manifest that is damaged": ({"x/SHA256SUMS": "\0"}, "verify x/SHA256SUMS"),
    "nothing to verify": ({"x/a": "b"}, "verify x"),
    "a run that is none": ({"x/a": ""}, "runs prune x"),
    "rows of a list": ({"a.jsonl": "[1, 2]\n"}, "embed a.jsonl"),
    "rows of nothing": ({"a.jsonl": "null\n"}, "embed a.jsonl"),
    "a text that is a number": ({"a.jsonl": '{"text": 1}\n'}, "embed a.jsonl"),
    "a text that is nested": ({"a.jsonl": '{"text": ["one"]}\n'}, "embed a.jsonl"),
    "rows that are no Parquet": ({"a.parquet": "PAR1PAR1"}, "embed a.parquet"),
    "TMX that ends early": ({"a.tmx": "<tmx><body><tu>"}, "evaluate --tasks parallel:a.tmx"),
    "TMX with entities": ({"a.tmx": ENTITIES}, "evaluate --tasks parallel:a.tmx"),
    "nested JSON to search in": ({"a.jsonl": '{"text": ' + NESTED + "}\n"}, "search one --in a.jsonl"),
    "nested JSON to find duplicates in": ({"a.jsonl": '{"text": ' + NESTED + "}\n"}, "dedup a.jsonl --out b.jsonl"),
    "nested JSON to cluster": ({"a.jsonl": '{"text": ' + NESTED + "}\n"}, "cluster a.jsonl --out b"),
    "nested JSON to synthesize from": ({"a.jsonl": '{"text": ' + NESTED + "}\n"}, "synthesize a.jsonl --out b"),
    "nested JSON to judge by": ({"t.jsonl": NESTED}, "adapt in.txt --out b --eval scored:t.jsonl"),
    "results of a number": ({"r.json": "1"}, "report r.json --out r.html"),
    "results without tasks": ({"r.json": '{"tasks": null}'}, "report r.json --out r.html"),
    "results of nested tasks": ({"r.json": '{"tasks": {"STS12": ' + NESTED + "}}"}, "report r.json --out r.html"),
    "results of 5,000 digits": (  
        {"r.json": '{"tasks": {"STS12": {"score": ' + DIGITS + "}}}"}, "report r.json --out r.md"),
    "a log of lists": ({"run/metrics.jsonl": "[]\n"}, "report run --out r.html"),
    "a sweep that is null": ({"s/sweep.json": "null"}, "report s --out r.html"),
    "a recipe of null": ({"r.yaml": "null"}, "train r.yaml --run run"),
    "a recipe of lists": ({"r.yaml": "- 1"}, "train r.yaml --run run"),
    "a recipe whose stages are a text": ({"r.yaml": "stages: x"}, "train r.yaml --run run"),
    "a recipe in Latin-1": ({"r.yaml": b"name: \xe9"}, "train r.yaml --run run"),
    "a recipe with a date": ({"r.yaml": "name: 2026-11-19\nstages: [{contrast: {}}]"}, "train r.yaml --run run"),
    "a recipe with a tag": ({"r.yaml": "name: !!python/name:os.system x"}, "train r.yaml --run run"),
}  # fmt: skip
MODEL_CASES = {
    "config.json: null": lambda folder: (folder / "config.json").write_text("null"),
    "config.json: empty": lambda folder: (folder / "config.json").write_text(""),
    "config.json: no UTF-8": lambda folder: (folder / "config.json").write_bytes(b'{"a": "\xff"}'),
    "config.json: 5,000 digits": lambda folder: (folder / "config.json").write_text('{"d_model": ' + DIGITS + "}"),
    "config.json: no heads": lambda folder: change(folder / "config.json", num_heads=0),
    "config.json: half a layer": lambda folder: change(folder / "config.json", num_layers=1.5),
    "config.json: a start beyond its tokens": lambda folder: change(folder / "config.json", vocab_size=7),
    "config.json: an epsilon of infinity": lambda folder: change(folder / "config.json", layer_norm_epsilon=1e400),
    "config.json: a model type of a list": lambda folder: change(folder / "config.json", model_type=["t5"]),
    "modules.json: an object": lambda folder: (folder / "modules.json").write_text("{}"),
    "modules.json: nested": lambda folder: (folder / "modules.json").write_text(NESTED),
    "modules.json: a path of a number": lambda folder: modules(folder, path=1),
    "modules.json: a path that is not there": lambda folder: modules(folder, path="9_Nothing"),
    "modules.json: a type of null": lambda folder: modules(folder, type=None),
    "pooling: null": lambda folder: (folder / "1_Pooling" / "config.json").write_text("null"),
    "pooling: nested": lambda folder: (folder / "1_Pooling" / "config.json").write_text(NESTED),
    "tokenizer.json: nested": lambda folder: (folder / "tokenizer.json").write_text(NESTED),
    "tokenizer.json: empty": lambda folder: (folder / "tokenizer.json").write_text(""),
    "tokenizer.json: a vocabulary of null": lambda folder: change(
        folder / "tokenizer.json", model={"type": "Unigram", "vocab": None}
    ),
    "tokenizer_config.json: nested": lambda folder: (folder / "tokenizer_config.json").write_text(NESTED),
    "model.safetensors: a header of null": lambda folder: (folder / "model.safetensors").write_bytes(
        (4).to_bytes(8, "little") + b"null"
    ),
    "model.safetensors: a header without an end": lambda folder: (folder / "model.safetensors").write_bytes(
        (2**60).to_bytes(8, "little") + b"{}"
    ),
    "tokenizer_config.json: null": lambda folder: (folder / "tokenizer_config.json").write_text("null"),
    "config.json: nested": lambda folder: (folder / "config.json").write_text(NESTED),
    "config.json: a distance of 0": lambda folder: change(folder / "config.json", relative_attention_max_distance=0),
    "config.json: 10^9 layers": lambda folder: change(folder / "config.json", num_layers=10**9),
    "config.json: a list for a number": lambda folder: change(folder / "config.json", d_model=[1]),
    "config.json: an activation of no name": lambda folder: change(folder / "config.json", feed_forward_proj=3),
    "tokenizer.json: null": lambda folder: (folder / "tokenizer.json").write_text("null"),
    "tokenizer.json: no model": lambda folder: change(folder / "tokenizer.json", model=None),
    "modules.json: numbers": lambda folder: (folder / "modules.json").write_text("[1, 2]"),
    "sentence_bert_config.json: a text": lambda folder: (folder / "sentence_bert_config.json").write_text('"a"'),
    "config_sentence_transformers.json: prompts": lambda folder: change(
        folder / "config_sentence_transformers.json", prompts=[1]
    ),
    "model.safetensors: empty": lambda folder: (folder / "model.safetensors").write_bytes(b""),
}  # fmt: skip


def is_one_line(done):
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr[-3000:]
    assert not re.match(r"[A-Z]\w+Error:", done.stderr)


@pytest.mark.parametrize(("files", "command"), CASES.values(), ids=CASES)
def test_what_a_file_holds_is_never_a_traceback(tercet, tmp_path, models, files, command):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if content == "/dev/zero":
            (tmp_path / name).symlink_to(content)
        else:
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    verb = command.split()[0]
    args = ["--model", models["t5"]] if verb in ("embed", "evaluate") else []
    args += ["--out", "out.npy"] if verb == "embed" else []
    is_one_line(tercet(*command.split(" "), *args))


@pytest.mark.parametrize("spoil", MODEL_CASES.values(), ids=MODEL_CASES)
def test_what_a_model_s_file_holds_is_never_a_traceback(tercet, tmp_path, models, spoil):
    shutil.copytree(models["t5"], tmp_path / "model")
    (tmp_path / "model" / "SHA256SUMS").unlink()
    spoil(tmp_path / "model")
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    is_one_line(tercet("embed", "in.txt", "--model", "./model", "--out", "out.npy"))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("odd\nlines"), cli.UNFORESEEN, r"odd lines \(ValueError\): nobody foresaw this error\. The"),
        (RecursionError("deep"), cli.UNFORESEEN, r"deep \(RecursionError\)"),
        (type("PanicException", (BaseException,), {})("rust"), cli.UNFORESEEN, r"rust \(PanicException\)"),
        (EOFError(), 2, "A file ended before its end"),
        (MemoryError(), 2, "There is not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 2, "There is not enough memory"),
        (OSError(28, "No space left on device"), 2, r"\[Errno 28\] No space left"),
    ],
)  # fmt: skip
def test_an_error_that_nobody_foresaw_is_one_line_and_its_traceback_is_kept(monkeypatch, capsys, error, code, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("tercet.verify", fail)
    monkeypatch.setattr(sys, "argv", ["tercet", "verify", "."])
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    signal.signal(signal.SIGTERM, before)
    line = capsys.readouterr().err
    assert ended.value.code == code
    assert re.match(said, line) and line.count("\n") == 1
    if code == cli.UNFORESEEN:
        kept = re.search(r"is in (\S+): please report it", line)[1]
        assert "in fail" in Path(kept).read_text()


def test_closed_standard_input_is_one_line(tmp_path, models):
    code = "import sys; sys.stdin = None; from tercet.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "embed", "-", "--model", models["t5"], "--out", "out.npy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    is_one_line(done)
    assert "standard input is closed" in done.stderr


def test_a_copy_of_standard_input_goes_when_the_command_is_told_to_end(tmp_path, models):
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "tercet", "embed", "-", "--model", models["t5"], "--out", "out.npy"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    ) as process:
        process.stdin.write(b"one\n" * 10_000)
        process.stdin.flush()
        while not [*(tmp_path / "tmp").glob("tercet-*/standard-input")]:
            time.sleep(0.02)
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
    assert not [*(tmp_path / "tmp").iterdir()]


@pytest.mark.parametrize(
    "command",
    [
        "embed in.txt --out out.npy",
        "synthesize in.txt --out out",
        "export --format onnx --out out",
        "report r --out out.md",
    ],
)
def test_a_second_command_says_who_holds_the_target(tercet, tmp_path, command):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    before = sorted(tmp_path.iterdir())
    with hold_target(tmp_path / command.split()[-1]):
        done = tercet(*command.split())
    is_one_line(done)
    assert f"{command.split()[-1]}: another run is going on here: process {os.getpid()} (" in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("files", [{"thesis.txt": "of value"}, {".hidden": "of value"}])
def test_synthesize_refuses_a_folder_with_other_files_before_it_writes(tercet, tmp_path, files):
    (tmp_path / "in.txt").write_text("one\n")
    (tmp_path / "out").mkdir()
    for name, content in files.items():
        (tmp_path / "out" / name).write_text(content)
    done = tercet("synthesize", "in.txt", "--out", "out")
    is_one_line(done)
    assert "holds other files than triplets" in done.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == files


def test_verify_names_a_damaged_file_and_ends_with_1(tercet, tmp_path, models):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    assert tercet("embed", "in.txt", "--model", models["t5"], "--out", "out.npy").returncode == 0
    done = tercet("verify", "out.npy")
    assert (done.returncode, done.stdout) == (0, "out.npy: 1 files compared with their hashes, 0 damaged\n")
    content = bytearray((tmp_path / "out.npy").read_bytes())
    content[200] ^= 1
    (tmp_path / "out.npy").write_bytes(content)
    done = tercet("verify", "out.npy", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["damaged"] == {"out.npy": "is not as it was written"}
