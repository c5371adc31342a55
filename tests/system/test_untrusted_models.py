"""Models that nobody vouches for: every one that wants to run code is refused, and a canary proves that none did."""

import importlib
import json
import os
import pickle
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

from tercet import Encoder, ModelError


@pytest.fixture
def canary(tmp_path):
    """Return a folder that exists only if foreign code was run."""
    return tmp_path / "canary"


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, canary):
        self.canary = str(canary)

    def __reduce__(self):
        return os.mkdir, (self.canary,)


@pytest.fixture
def model(models, tmp_path, canary, monkeypatch):
    """Return a copy of a good model, with code beside it that could be imported from here."""
    folder = tmp_path / "model"
    shutil.copytree(models["projected"], folder)
    (folder / "SHA256SUMS").unlink()  # somebody else made it
    code = f"import os\nos.mkdir({str(canary)!r})\nclass Foreign:\n    pass\nForeignConfig = ForeignModel = Foreign\n"
    (folder / "modeling_x.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("modeling_x", None)


def change_json(file, change):
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def dense_of(folder):
    return next(folder.glob("*_Dense"))


def pickle_weights(folder, canary):
    """Put a malicious pickle in the place of the weights."""
    weights = load_file(folder / "model.safetensors")
    torch.save({**weights, "evil": Evil(canary)}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def bare_pickle(folder, canary):
    """The same, as a plain pickle without torch's container."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(canary)))


def pickle_in_shards(folder, canary):
    """Let an index of safetensors name a pickle."""
    pickle_weights(folder, canary)
    names = load_file(dense_of(folder) / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys([*names, "shared.weight"], "pytorch_model.bin")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def pickle_under_a_false_name(folder, canary):
    pickle_weights(folder, canary)
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")


def pickled_dense(folder, canary):
    pickle_weights(dense_of(folder), canary)


def foreign_module(folder, _canary):
    def change(modules):
        modules[1]["type"] = "modeling_x.Foreign"

    change_json(folder / "modules.json", change)


def foreign_module_with_a_known_name(folder, _canary):
    def change(modules):
        modules[1]["type"] = "modeling_x.Pooling"

    change_json(folder / "modules.json", change)


def foreign_activation(folder, _canary):
    change_json(
        dense_of(folder) / "config.json", lambda config: config.update(activation_function="modeling_x.Foreign")
    )


def config_with_code(folder, _canary):
    auto_map = {"AutoConfig": "modeling_x.ForeignConfig", "AutoModel": "modeling_x.ForeignModel"}
    change_json(folder / "config.json", lambda config: config.update(auto_map=auto_map))


def config_of_a_foreign_kind(folder, canary):
    config_with_code(folder, canary)
    change_json(folder / "config.json", lambda config: config.update(model_type="foreign"))


def config_with_a_kernel(folder, _canary):
    change_json(folder / "config.json", lambda config: config.update(attn_implementation="acme/kernel"))


def tokenizer_with_code(folder, _canary):
    auto_map = {"AutoTokenizer": ["modeling_x.Foreign", "modeling_x.Foreign"]}
    change_json(folder / "tokenizer_config.json", lambda config: config.update(auto_map=auto_map))


UNTRUSTED = {
    "pickled weights": (pickle_weights, "is a pickle"),
    "a bare pickle": (bare_pickle, "is a pickle"),
    "a pickle named by an index": (pickle_in_shards, "no safetensors of this folder"),
    "a pickle that is called safetensors": (pickle_under_a_false_name, "cannot be read"),
    "a dense layer that is pickled": (pickled_dense, "is a pickle"),
    "a module of a foreign class": (foreign_module, "'modeling_x.Foreign'"),
    "a module of a foreign class with a known name": (foreign_module_with_a_known_name, "'modeling_x.Pooling'"),
    "a foreign activation": (foreign_activation, "activations"),
    "a configuration with code": (config_with_code, "auto_map"),
    "a configuration of a foreign kind with code": (config_of_a_foreign_kind, "'foreign'"),
    "a kernel from the hub": (config_with_a_kernel, "attn_implementation"),
    "a tokenizer with code": (tokenizer_with_code, "auto_map"),
}


@pytest.mark.parametrize("convert_pickle", [False, True], ids=["", "convert_pickle"])
@pytest.mark.parametrize(("spoil", "part"), UNTRUSTED.values(), ids=UNTRUSTED)
def test_a_model_that_wants_to_run_code_is_refused_and_none_is_run(
    tercet, model, canary, tmp_path, spoil, part, convert_pickle
):
    spoil(model, canary)
    (tmp_path / "in.txt").write_text("one\n")
    files = sorted(model.rglob("*"))
    part = "was not read" if convert_pickle and part == "is a pickle" else part
    with pytest.raises(ModelError, match=part):
        Encoder.load(model, convert_pickle=convert_pickle)
    assert not canary.exists()
    assert "modeling_x" not in sys.modules

    flags = ["--convert-pickle"] if convert_pickle else []
    done = tercet("embed", "in.txt", "--model", "./model", "--out", "out.npy", *flags)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert part in done.stderr
    assert not canary.exists()
    assert not (tmp_path / "out.npy").exists()
    assert sorted(model.rglob("*")) == files


def test_the_model_is_fine_before_it_is_spoiled(model, canary):
    assert Encoder.load(model).embed(["one"]).shape == (1, 16)
    assert not canary.exists()


def test_the_canary_fires_when_such_a_pickle_is_really_loaded(model, canary):
    pickle_weights(model, canary)
    torch.load(model / "pytorch_model.bin", weights_only=False)
    assert canary.exists()


def test_the_canary_fires_when_such_a_bare_pickle_is_really_loaded(model, canary):
    bare_pickle(model, canary)
    pickle.loads((model / "pytorch_model.bin").read_bytes())
    assert canary.exists()


def test_the_canary_fires_when_the_code_beside_a_model_is_really_imported(model, canary):
    importlib.import_module("modeling_x")
    assert canary.exists()


def test_the_canary_fires_when_a_library_trusts_the_code_beside_a_model(model, canary, monkeypatch, tmp_path):
    from transformers import AutoConfig, dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    config_of_a_foreign_kind(model, canary)
    with pytest.raises(Exception):  # noqa: B017 - the class is none that the library can use, but it is imported
        AutoConfig.from_pretrained(model, trust_remote_code=True)
    assert canary.exists()


def test_an_honest_pickle_is_converted_once_where_that_is_asked_for(models, model, canary):
    for folder in (model, dense_of(model)):
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="is a pickle"):
        Encoder.load(model)
    expected = Encoder.load(models["projected"]).embed(["one", "two"])
    assert (Encoder.load(model, convert_pickle=True).embed(["one", "two"]) == expected).all()
    assert (Encoder.load(model).embed(["one", "two"]) == expected).all()


@pytest.mark.parametrize("content", [[1, 2], {"weight": [1.0]}, "weights"], ids=["a list", "no tensors", "a text"])
def test_a_pickle_of_something_else_is_refused(model, content):
    (model / "model.safetensors").unlink()
    torch.save(content, model / "pytorch_model.bin")
    with pytest.raises(ModelError, match="something else than named weights"):
        Encoder.load(model, convert_pickle=True)


@pytest.mark.parametrize("content", [b"", b"\x80", b"nonsense", b"PK\x03\x04nonsense"])
def test_a_broken_pickle_is_refused(model, content):
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ModelError, match="was not read"):
        Encoder.load(model, convert_pickle=True)


def test_a_model_reads_no_file_outside_of_its_folder(models, model, tmp_path):
    shutil.copytree(dense_of(model), tmp_path / "outside")
    for path in ("../outside", str(tmp_path / "outside")):
        change_json(model / "modules.json", lambda modules, path=path: modules[2].update(path=path))
        with pytest.raises(ModelError, match="outside of the folder"):
            Encoder.load(model)
