"""Everything that reads files of others, each with a good file: what `fuzz` spoils."""

import contextlib
import json
import shutil
from functools import partial

import numpy as np
import torch

from tercet import Encoder
from tercet.data.feeding.sources import open_rows
from tercet.data.reading.formats import FORMATS, read_records
from tercet.data.rows.texts import TextFile
from tercet.data.sets.folder import DataFolder
from tercet.evaluation.tasks.own import kind_of
from tercet.evaluation.tasks.table import choose_tasks
from tercet.evaluation.tasks.task import Options
from tercet.reporting.results import read_runs
from tercet.storage.files import read_json
from tercet.storage.manifest import damage_of
from tercet.synthesis.corpus import read_audit
from tercet.synthesis.synthesizer import Synthesizer
from tercet.training.loop.checkpoints import Checkpoints
from tercet.training.recipe import read_recipe
from tercet.vectors.kept import read_kept

_SETS = [
    ("STSB-dev", "senteval/STS/STSBenchmark/sts-dev.csv", b"main\tf\t2012\t1\t2.5\tA man.\tA dog.\n" * 3),
    ("SICK-R", "senteval/SICK/SICK_test_annotated.txt", b"id\tA\tB\tscore\tlabel\n1\tA man.\tA dog.\t3.2\tNEUTRAL\n"),
    (
        "TwitterURL",
        "twitter_url/Twitter_URL_Corpus_test.txt",
        b"A man.\tA dog.\t(3, 6)\thttp://x\nOne.\tTwo.\t(6, 6)\thttp://y\n",
    ),
    ("TREC", "senteval/TREC/TREC_10.label", b"NUM:dist How far is it ?\nLOC:city What is it ?\n"),
]
"""Evaluation files: the task that reads them, their name, and some rows."""


_HEADER = 6000
"""So many bytes of weights are spoiled: the header, and a few numbers."""


def readers(world, done, scratch):
    """Return (name, good file, reader): the reader writes what it is given into its file and reads that."""
    scratch.mkdir()
    found = [*_rows(world, done, scratch), *_sets(scratch), *_own_files(world, done, scratch), *_models(world, scratch)]
    return [(name, content, partial(_read, read, file)) for name, content, read, file in found]


def _read(read, file, data):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    read(file)


def _rows(world, done, scratch):
    texts, tables = (world / "in.txt").read_bytes(), (world / "pairs.tsv").read_bytes()[:400]
    sides = b"".join(b'<tuv xml:lang="%s"><seg>one</seg></tuv>' % side for side in (b"en", b"de"))
    tmx = b'<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body><tu>%s</tu></body></tmx>' % sides
    contents = {
        "lines": texts[:300],
        "jsonl": b"".join(json.dumps({"text": line}).encode() + b"\n" for line in texts.decode().splitlines()[:4]),
        "csv": tables.replace(b"\t", b","),
        "tsv": tables,
        "snli": tables,
        "tmx": tmx,
        "parquet": next((done / "synthesize" / "made" / "candidates").glob("*.parquet")).read_bytes(),
    }
    for name in FORMATS:
        file = scratch / f"a.{name}"
        yield f"records: {name}", contents[name], lambda file, name=name: [*read_records(file, name)], file
        if name in ("lines", "jsonl", "csv", "tsv", "parquet"):
            yield f"texts: {name}", contents[name], lambda file, name=name: TextFile.open(file, file_format=name), file
    yield "task file", tables, kind_of, scratch / "task.tsv"
    nli = b"premise\thypothesis\tlabel\nA man.\tNobody.\tcontradiction\nA man.\tSomebody.\tentailment\n"
    for kind, name, content in (
        ("triplets", "tsv", (world / "rows.tsv").read_bytes()),
        ("triplets", "jsonl", (done / "synthesize" / "made" / "triplets.jsonl").read_bytes()),
        ("triplets", "tsv", nli),
        ("nli", "tsv", nli),
        ("inference", "tsv", nli),
        ("parallel", "tsv", b"en\tde\nA man.\tEin Mann.\nDogs.\tHunde.\n"),
        ("parallel", "tmx", tmx),
        ("texts", "csv", contents["csv"]),
    ):
        place = scratch / f"b.{name}"
        yield f"rows: {kind} {name}", content, lambda file, kind=kind: [*open_rows(file, kind=kind)], place


def _sets(scratch):
    for task, file, content in _SETS:
        place = scratch / "sets" / file
        yield f"evaluation set: {task}", content, lambda _, task=task: _scores(task, scratch / "sets"), place


def _own_files(world, done, scratch):
    good, step = scratch / "good", "step-00000004"
    Checkpoints(good).save(4, {"weights": {"a": torch.ones(3)}}, {"best": None})
    for name in ("state.json", "weights.safetensors", "SHA256SUMS"):
        place = scratch / "checkpoints" / step / name
        yield f"checkpoint: {name}", (good / step / name).read_bytes(), partial(_go_on, good), place
    for name in ("float32", "float16"):
        place = scratch / f"{name}.npy"
        np.save(place, np.ones((3, 4), name))
        yield "kept vectors", place.read_bytes(), partial(_kept, name), place
    made, run = done / "synthesize" / "made", done / "train" / "run"
    for name, file, read, place in (
        ("recipe", world / "recipe.yaml", read_recipe, "recipe.yaml"),
        ("results", done / "evaluate" / "scores" / "results.json", lambda file: read_runs([file]), "results.json"),
        ("json", world / "t5" / "config.json", read_json, "a.json"),
        ("audit", made / "audit.json", lambda file: read_audit(file.parent), "audit/audit.json"),
        ("manifest", world / "t5" / "SHA256SUMS", lambda file: [*damage_of(file)], "SHA256SUMS"),
        ("log", run / "metrics.jsonl", lambda file: read_runs([file.parent]), "log/metrics.jsonl"),
    ):
        yield name, file.read_bytes(), read, scratch / place


def _models(world, scratch):
    for model, use in (("synth", _judge), ("t5", _embed), ("bert", _embed)):
        copy = scratch / model
        shutil.copytree(world / model, copy)
        (copy / "SHA256SUMS").unlink(missing_ok=True)
        for file in sorted(each for each in copy.rglob("*") if each.suffix in (".json", ".safetensors")):
            good = file.read_bytes()
            size = _HEADER if file.suffix == ".safetensors" else len(good)
            yield f"model: {model}/{file.relative_to(copy)}", good[:size], partial(_use, use, copy, good, size), file


def _use(use, folder, good, size, file):
    try:
        file.write_bytes(file.read_bytes() + good[size:])
        use(folder)
    finally:
        file.write_bytes(good)


def _embed(folder):
    Encoder.load(folder, device="cpu").embed(["A man is playing.", "x"])


def _judge(folder):
    Synthesizer.load(str(folder), engine="transformers").score(["A man is playing."], ["x"])


def _scores(task, folder):
    [chosen] = choose_tasks(task)
    chosen.run(DataFolder(folder), lambda texts: np.ones((len(texts), 2), np.float32), Options())


def _go_on(good, file):
    for each in (good / file.parent.name).iterdir():
        if each.name != file.name:
            shutil.copy(each, file.parent)
    found = Checkpoints(file.parent.parent).newest()
    if found is not None and not torch.equal(found.tensors("weights")["a"], torch.ones(3)):
        raise AssertionError("other weights than were saved")


def _kept(name, file):
    with contextlib.suppress(ValueError):  # where it is called, such vectors are made again
        np.isfinite(read_kept(file, dtype=np.dtype(name), shape=(3, 4))).all()
