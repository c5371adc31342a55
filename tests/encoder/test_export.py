"""Exported graphs: the same vectors in ONNX Runtime and OpenVINO, with Tercet and without."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import torch

from tercet import Encoder, ModelError, NonFiniteError, OutputError, SettingError
from tercet.encoder import export as export_module
from tercet.encoder.export import Difference, export
from tercet.encoder.graph import GraphEngine
from tercet.evaluation.evaluate import evaluate
from tercet.storage.hashing import sha256_of_folder
from tercet.vectors.search import search

# name: (family, settings, format, int8); together they have every family, every kind of readout and every format
CASES = {
    "projected": ("t5", {"projection": 24, "prompt": "query: [X]"}, "onnx", False),
    "question": ("t5-1.1", {"readout": "encdec-first", "prompt": "gense"}, "openvino", False),
    "first": ("umt5", {"readout": "enc-first"}, "onnx", False),
    "mlp": ("roberta", {"readout": "cls-mlp"}, "onnx", False),
    "question-int8": ("t5", {"readout": "encdec-first"}, "onnx", True),
    "raw-int8": ("bert", {"readout": "first-last-mean", "normalize": False}, "openvino", True),
}
EXACT = [name for name, case in CASES.items() if not case[-1]]
SMALL = [name for name, case in CASES.items() if case[-1]]


def keep_two_layers(encoder):
    """Cut a T5 to two layers: tracing takes seconds a layer."""
    backbone = encoder.tower.backbone
    stacks = [backbone.encoder] + ([backbone.decoder] if hasattr(backbone, "decoder") else [])
    if hasattr(backbone.encoder, "block"):
        for stack in stacks:
            stack.block = stack.block[:2]
        backbone.config.num_layers = backbone.config.num_decoder_layers = 2
    return encoder


@pytest.fixture(scope="session")
def exported(tiny, tmp_path_factory):
    """Return a function that gives an encoder and the folder that it was exported to, by the name of a case."""
    made = {}

    def make(name):
        if name not in made:
            family, settings, graph_format, int8 = CASES[name]
            encoder, folder = keep_two_layers(tiny(family, **settings)), tmp_path_factory.mktemp("exported") / name
            difference = export(encoder, folder, format=graph_format, int8=int8)
            made[name] = encoder, folder, difference
        return made[name]

    return make


def cosines(a, b):
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


@pytest.mark.parametrize("name", EXACT)
def test_an_exported_encoder_gives_equal_vectors_for_any_batch_and_length(exported, sentences, name):
    encoder, folder, difference = exported(name)
    loaded = Encoder.load(folder)
    long = " ".join(sentences * 3)
    for texts in (sentences, sentences[:1], ["a"] * 3, [long, "b"], [long, *sentences, "c"]):
        assert np.abs(loaded.embed(texts) - encoder.embed(texts)).max() < 1e-4
    assert difference.max_error < 1e-5


@pytest.mark.parametrize("name", EXACT)
def test_the_graph_equals_the_forward_of_transformers(exported, name):
    encoder, folder, _ = exported(name)
    loaded = Encoder.load(folder)
    positions = encoder.tower.config.get("max_position_embeddings", 300)
    for size in ((3, 11), (1, 1), (2, min(300, positions - 2))):
        ids = torch.randint(5, 40, size)
        mask = torch.ones_like(ids)
        mask[1:2, size[1] // 2 :] = 0
        ids[mask == 0] = encoder.tokens.pad_id
        with torch.inference_mode():
            wanted = encoder.tower(ids, mask).numpy()
        assert np.abs(loaded._run(ids.numpy(), mask.numpy()) - wanted).max() < 1e-5


@pytest.mark.parametrize("name", SMALL)
def test_an_int8_export_is_near_and_says_how_near(exported, sentences, name):
    encoder, folder, difference = exported(name)
    nearest = cosines(Encoder.load(folder).embed(sentences), encoder.embed(sentences)).min()
    assert 0.99 < nearest < 1 - 1e-7  # something was quantised
    stored = json.loads((folder / "exported.json").read_text())
    assert stored["int8"] and stored["min_cosine"] == difference.min_cosine
    assert f"{difference.min_cosine:.4f}" in (folder / "README.md").read_text()


def test_int8_weights_are_stored_in_8_bits(exported):
    _, folder, _ = exported("question-int8")
    graph = onnx.load(folder / "model.onnx").graph
    weights = {weight.name for weight in graph.initializer if len(weight.dims) == 2 and weight.data_type == 1}
    assert not [node.name for node in graph.node if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights]
    encoder, folder, _ = exported("raw-int8")
    model = openvino.Core().read_model(folder / "model.xml")
    kinds = [op.get_element_type().to_string() for op in model.get_ops() if op.get_type_name() == "Constant"]
    num_linear = sum(isinstance(module, torch.nn.Linear) for module in encoder.tower.modules())
    assert kinds.count("u8") == 2 * num_linear  # numbers and zero points


def test_the_graph_takes_ids_and_mask_of_any_size(exported):
    _, folder, _ = exported("projected")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    inputs = [(value.name, value.shape, value.type) for value in session.get_inputs()]
    shape = ["batch", "length"]
    assert inputs == [("input_ids", shape, "tensor(int64)"), ("attention_mask", shape, "tensor(int64)")]
    assert [value.name for value in session.get_outputs()] == ["sentence_embedding"]


@pytest.mark.parametrize("name", ["projected", "question"])
def test_the_script_in_the_folder_runs_without_tercet(exported, sentences, tmp_path, name):
    encoder, folder, _ = exported(name)
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    code = (
        "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "assert not {'tercet', 'torch', 'transformers', 'onnx'} & set(sys.modules)"
    )
    script = [sys.executable, "-c", code, moved / "embed.py", *sentences]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    vectors = np.array([json.loads(line) for line in done.stdout.splitlines()])
    assert np.abs(vectors - encoder.embed(sentences)).max() < 1e-4


def test_a_model_without_a_compiled_tokenizer_has_no_script(tiny, tmp_path):
    about = {"format": "onnx", "int8": False, "graph": "model.onnx"}
    export_module._write_rest(tiny("byt5"), tmp_path, about, Difference(0.0, 1.0))
    assert not (tmp_path / "embed.py").exists()
    assert "embed.py" not in (tmp_path / "README.md").read_text()


def test_settings_and_source_are_in_the_folder(exported):
    encoder, folder, _ = exported("question")
    stored = json.loads((folder / "exported.json").read_text())
    assert stored["source"] == encoder.fingerprint()
    assert encoder.settings.model_dump().items() <= stored.items()
    loaded = Encoder.load(folder)
    assert loaded.settings == encoder.settings
    assert (loaded.dim, loaded.num_parameters) == (encoder.dim, encoder.num_parameters)
    assert loaded.num_parameters == sum(parameter.numel() for parameter in encoder.tower.parameters())


def test_prompt_and_length_can_be_chosen_when_an_export_is_loaded(exported, sentences, tmp_path):
    encoder, folder, _ = exported("projected")
    encoder.save(tmp_path / "saved")
    chosen = {"prompt": "passage: [X]", "max_tokens": 20}
    wanted = Encoder.load(tmp_path / "saved", device="cpu", **chosen).embed(sentences)
    assert np.abs(Encoder.load(folder, **chosen).embed(sentences) - wanted).max() < 1e-4


def test_first_numbers_and_unit_length_are_as_without_export(exported, sentences):
    encoder, folder, _ = exported("mlp")
    found = Encoder.load(folder).embed(sentences, dims=7)
    assert np.abs(found - encoder.embed(sentences, dims=7)).max() < 1e-4
    encoder, folder, _ = exported("raw-int8")
    lengths = np.linalg.norm(Encoder.load(folder).embed(sentences, normalize=True), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5)


def test_what_a_graph_cannot_do_is_refused(exported, tmp_path):
    loaded = Encoder.load(exported("projected")[1])
    with pytest.raises(ModelError, match="cannot be trained"):
        _ = loaded.tower
    with pytest.raises(ModelError, match="saved"):
        loaded.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(SettingError, match=r"precision 'fast'.*fp32"):
        loaded.embed(["a"], precision="fast")
    with pytest.raises(SettingError, match="normalize false"):
        loaded.embed(["a"], normalize=False)
    with pytest.raises(SettingError, match="exported again"):
        export(loaded, tmp_path / "again", format="onnx")
    assert loaded.resolve_precision("auto") == "exact"


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"readout": "enc-first"}, "has 'enc-mean'"),
        ({"projection": None}, "has 24"),
        ({"max_tokens": 65}, "exported for 64"),
        ({"device": "cuda"}, "runs on the CPU"),
    ],
)
def test_settings_that_do_not_fit_the_graph_are_refused(exported, chosen, message):
    with pytest.raises(SettingError, match=message):
        Encoder.load(exported("projected")[1], **chosen)


def test_search_and_evaluate_work_with_an_export(exported, sentences, tmp_path):
    encoder, folder, _ = exported("mlp")
    loaded = Encoder.load(folder)
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(text for text in sentences if text) + "\n", encoding="utf-8")
    hits, wanted = (search("stocks", texts, model=model, k=3, cache=False) for model in (loaded, encoder))
    assert [hit.row for hit in hits] == [hit.row for hit in wanted]
    pairs = tmp_path / "pairs.tsv"
    rows = [f"{a}\t{b}\t{score}" for score, (a, b) in enumerate(pairwise(sentences[3:7]))]
    pairs.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n", encoding="utf-8")
    task = f"scored:{pairs}"
    results = [evaluate(model, tasks=task)["tasks"][task]["score"] for model in (loaded, encoder)]
    assert results[0] == pytest.approx(results[1], abs=0.1)


def test_the_fingerprint_of_an_export_is_its_own(exported, tmp_path):
    encoder, folder, _ = exported("projected")
    copy = shutil.copytree(folder, tmp_path / "copy")
    fingerprint = Encoder.load(copy).fingerprint()
    assert fingerprint == Encoder.load(folder).fingerprint() != encoder.fingerprint()
    assert Encoder.load(copy, max_tokens=20).fingerprint() != fingerprint
    model = onnx.load(copy / "model.onnx")
    model.producer_name = "somebody else"
    onnx.save(model, copy / "model.onnx")
    (copy / "SHA256SUMS").unlink()  # somebody else made it
    assert Encoder.load(copy).fingerprint() != fingerprint


def test_a_model_that_cannot_be_traced_is_an_error_and_stays_as_it_was(tiny, tmp_path, monkeypatch):
    encoder = tiny("bert")
    encoder.tower.train()
    before = encoder.tower.backbone.config._attn_implementation

    def fail(tower, *_args, **_more):
        assert not tower.training
        assert tower.backbone.config._attn_implementation == "eager" != before
        raise RuntimeError("too strange\nat great length")

    monkeypatch.setattr(torch.export, "export", fail)
    with pytest.raises(ModelError, match=r"of this model \(too strange\)"):
        export(encoder, tmp_path / "out", format="onnx")
    assert list(tmp_path.iterdir()) == []
    assert encoder.tower.training
    assert encoder.tower.backbone.config._attn_implementation == before


def test_a_graph_that_is_off_is_not_kept(exported, tmp_path, monkeypatch):
    encoder, _, _ = exported("projected")
    out = tmp_path / "out"
    out.mkdir()
    (out / "exported.json").write_text("an earlier export")
    monkeypatch.setattr(export_module, "_write_onnx", lambda _encoder, file: file.write_bytes(b""))
    monkeypatch.setattr(
        export_module.standalone, "OPEN", {"onnx": lambda _graph: lambda ids, _mask: np.ones((len(ids), 24))}
    )
    with pytest.raises(ModelError, match=r"off by .* more than 1e-04"):
        export(encoder, out, format="onnx", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (out / "exported.json").read_text() == "an earlier export"


def test_an_export_of_another_encoder_or_format_is_not_replaced_unless_it_is_asked_for(tiny, tmp_path):
    export(tiny("bert", readout="mean"), tmp_path / "out", format="onnx")
    export(tiny("bert", readout="mean"), tmp_path / "out", format="onnx")
    before = sha256_of_folder(tmp_path / "out")
    with pytest.raises(OutputError, match=r"out: holds an export of another encoder, which would be lost\. .+--force"):
        export(tiny("bert", readout="cls"), tmp_path / "out", format="onnx")
    with pytest.raises(OutputError, match="holds an export with int8 False"):
        export(tiny("bert", readout="mean"), tmp_path / "out", format="onnx", int8=True)
    assert sha256_of_folder(tmp_path / "out") == before
    export(tiny("bert", readout="cls"), tmp_path / "out", format="onnx", force=True)
    assert sha256_of_folder(tmp_path / "out") != before


def test_other_files_are_not_lost(tiny, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="other files than an export"):
        export(tiny("bert"), tmp_path, format="onnx")
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize(("graph_format", "package"), [("onnx", "onnxruntime"), ("openvino", "openvino")])
def test_a_missing_package_is_named_with_what_to_install(exported, tiny, tmp_path, monkeypatch, graph_format, package):
    folder = exported("projected" if graph_format == "onnx" else "question")[1]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match=rf"^{package}: is not installed, and format .*tercet\[{graph_format}\]"):
        export(tiny("bert"), tmp_path / "out", format=graph_format)
    with pytest.raises(ModelError, match=rf"^{package}: is not installed, and {folder}.*tercet\[{graph_format}\]"):
        Encoder.load(folder)


def test_an_unknown_format_is_refused(tiny, tmp_path):
    with pytest.raises(SettingError, match="Known: onnx, openvino"):
        export(tiny("bert"), tmp_path / "out", format="tflite")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.onnx", "no graph"),
        ("exported.json", "{"),
        ("exported.json", "[]"),
        ("exported.json", '{"format": "onnx"}'),
        ("exported.json", '{"format": "../../model"}'),
    ],
)
def test_a_damaged_export_is_an_error_that_names_the_file(exported, tmp_path, file, content):
    copy = shutil.copytree(exported("projected")[1], tmp_path / "copy")
    (copy / file).write_text(content)
    with pytest.raises(ModelError, match=file):
        Encoder.load(copy)


def test_a_vector_that_is_not_finite_is_an_error():
    with pytest.raises(NonFiniteError, match="exported graph"):
        GraphEngine(lambda ids, _mask: np.full((len(ids), 2), np.nan, np.float32), 0)([[1, 2]])


def test_weights_beside_the_graph_are_read_and_quantised(exported, sentences, tmp_path):
    encoder, folder, _ = exported("mlp")
    whole = onnx.load(folder / "model.onnx")
    folders = [shutil.copytree(folder, tmp_path / name) for name in ("fp32", "int8")]
    (tmp_path / "source").mkdir()
    source = tmp_path / "source" / "model.onnx"
    onnx.save(whole, source, save_as_external_data=True, location="model.onnx.data")  # as torch does over 2 GB
    shutil.copytree(source.parent, folders[0], dirs_exist_ok=True)
    for copy in folders:
        (copy / "SHA256SUMS").unlink()
    with export_module._quiet():
        export_module._quantize_onnx(source, folders[1] / "model.onnx")
    before = Encoder.load(folder).fingerprint()
    for copy in folders:
        assert (copy / "model.onnx.data").exists()
        loaded = Encoder.load(copy)
        assert cosines(loaded.embed(sentences), encoder.embed(sentences)).min() > 0.99
        assert loaded.fingerprint() != before
