"""The verb `export`: an encoder as a graph for ONNX Runtime or OpenVINO, with all that is needed to run it.

The folder holds the graph, the tokenizer, `exported.json` with every setting, and `embed.py`, a script that needs no
Tercet. `Encoder.load` reads the folder back as an encoder that runs through that runtime.
"""

import contextlib
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet.encoder import standalone
from tercet.encoder.choice import Model, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.encoder.folder.layout import EXPORT_FILE
from tercet.encoder.forward.batches import pad
from tercet.encoder.graph import GRAPHS, RUNTIMES, Exported
from tercet.encoder.model.readouts import describe_readout
from tercet.errors import ModelError, OutputError, SettingError
from tercet.storage.choices import GraphFormat, check_choice
from tercet.storage.extras import require
from tercet.storage.files import atomic_folder, make_folder, read_json, target_errors, write_json
from tercet.storage.locks import hold_target
from tercet.storage.manifest import write_manifest

if TYPE_CHECKING:
    import openvino

_NEEDS = {name: ("onnx", "onnxscript", runtime) for name, runtime in RUNTIMES.items()}

_AXES = {"input_ids": {0: "batch", 1: "length"}, "attention_mask": {0: "batch", 1: "length"}}

_MAX_ERROR = 1e-4
"""How far an fp32 graph may be off, relative to the largest number of a vector where that is above 1."""

_SAMPLE = (
    "Yes.",
    "Stocks dropped.",
    "A man is playing a guitar on the stage.",
    "How do I reset the password of my account?",
    "The committee will meet again on Monday, 14 October, to discuss the budget.",
    "Two dogs run through deep snow while a third one waits near the old wooden fence by the river.",
    "Mitochondrial DNA is inherited from the mother in most species, although exceptions have been reported.",
    "I would not recommend this phone: the battery is empty before noon, and the screen cannot be read in the sun.",
)
"""What every export is tried with before it is kept: texts of other lengths and number than were traced."""


@dataclass(frozen=True)
class Difference:
    """How the vectors of an exported graph differ from the encoder's own, over a few sample texts."""

    max_error: float
    min_cosine: float

    def to_dict(self) -> dict[str, float]:
        """Return both."""
        return asdict(self)


def check_format(name: str) -> None:
    """Make sure that a format is known and its packages are installed.

    Raises:
        SettingError: It is not; the message says what to install.
    """
    check_choice("format", name, GraphFormat)
    for package in _NEEDS[name]:
        require(package, name, needed_by=f"format {name!r}")


def export(
    model: "Model", out: str | Path, *, format: GraphFormat, int8: bool = False, force: bool = False
) -> Difference:
    """Write an encoder as a graph from token ids to vectors, in place of an earlier export of it.

    The graph takes `input_ids` and `attention_mask`, int64 [batch, length], and gives `sentence_embedding`, float32
    [batch, d]: readout, dense layers and normalisation as the encoder has them. It is tried before it is kept.

    Args:
        model: What to export: an encoder by its name, its settings, or an Encoder.
        out: The folder; written whole or not at all.
        format: `onnx` or `openvino`.
        int8: Whether the weights of matrix products are stored as 8-bit numbers. ONNX Runtime then quantises
            activations too, as they come; OpenVINO decides that by the CPU.
        force: Whether an export of another encoder, or in another format, is replaced.

    Returns:
        The difference that was measured.

    Raises:
        SettingError: There is no such format, a package is missing, or the encoder is an export itself.
        ModelError: The graph does not give the encoder's vectors.
        OutputError: The folder cannot be written, or holds something else.
    """
    check_format(format)
    target = Path(out)
    make_folder(target.parent)
    with hold_target(target):
        return _export(model, target, format, int8, force)


def _export(model: "Model", target: Path, format: GraphFormat, int8: bool, force: bool) -> Difference:
    encoder = load_encoder(model)
    if isinstance(encoder, Exported):
        raise SettingError("an exported model cannot be exported again. Load the model that it was made from.")
    with target_errors(target):
        if target.is_dir() and any(target.iterdir()) and not (target / EXPORT_FILE).exists():
            raise OutputError(f"{target}: holds other files than an export, which would be lost. Name a new folder.")
    if not force:
        _check_replaced(target, {"source": encoder.fingerprint(), "format": format, "int8": int8})
    with atomic_folder(target) as folder:
        graph = folder / GRAPHS[format]
        with _quiet(), tempfile.TemporaryDirectory(dir=folder) as scratch:
            plain = Path(scratch) / "model.onnx" if int8 or format == "openvino" else graph
            _write_onnx(encoder, plain)
            if format == "openvino":
                _write_openvino(plain, graph, int8=int8)
            elif int8:
                _quantize_onnx(plain, graph)
            difference = _measure(encoder, standalone.OPEN[format](graph))
        if not int8 and difference.max_error > _MAX_ERROR:
            raise ModelError(
                f"{target}: the graph's vectors are off by {difference.max_error:.1e}, more than {_MAX_ERROR:.0e}. "
                "It was not kept; this model cannot be exported."
            )
        _write_rest(encoder, folder, {"format": format, "int8": int8, "graph": graph.name}, difference)
        write_manifest(folder)
    return difference


def _check_replaced(target: Path, wanted: dict[str, object]) -> None:
    """Raise OutputError if a folder holds an export of another encoder, or in another format."""
    if not (target / EXPORT_FILE).exists():
        return
    found = read_json(target / EXPORT_FILE, kind=dict, raised=OutputError, fix="Name a new folder, or take --force.")
    others = [name for name, value in wanted.items() if found.get(name) != value]
    if others:
        what = "of another encoder" if "source" in others else f"with {others[0]} {found.get(others[0])!r}"
        raise OutputError(f"{target}: holds an export {what}, which would be lost. Name a new folder, or take --force.")


def _write_onnx(encoder: Encoder, file: Path) -> None:
    """Trace the encoder with any batch size and length; weights over 2 GB go into a file beside the graph."""
    import torch

    free = torch.export.Dim.DYNAMIC
    ids, mask = (torch.ones((2, 8), dtype=torch.long, device=encoder.device) for _ in range(2))  # one would be shared
    names: dict[str, Any] = {"input_names": [*_AXES], "output_names": ["sentence_embedding"], "dynamic_shapes": _AXES}
    try:
        with torch.no_grad(), _traceable(encoder.tower):
            program = torch.export.export(encoder.tower, (ids, mask), dynamic_shapes=({0: free, 1: free},) * 2)
            graph: Any = torch.onnx.export(program, verbose=False, **names)
    except RuntimeError as error:  # what all of torch's own errors are
        reason = str(error).partition("\n")[0]
        raise ModelError(f"torch cannot make a graph of this model ({reason}). It cannot be exported.") from error
    graph.save(file)


@contextlib.contextmanager
def _traceable(tower: Any) -> Iterator[None]:
    """Put a tower in evaluation mode, with attention written out: torch cannot translate its fused one."""
    training, attention = tower.training, tower.backbone.config._attn_implementation
    tower.eval()
    tower.backbone.set_attn_implementation("eager")
    try:
        yield
    finally:
        tower.backbone.set_attn_implementation(attention)
        tower.train(training)


def _quantize_onnx(source: Path, target: Path) -> None:
    """Quantise the weights of matrix products, each output by its own scale.

    Unsigned weights, because products of unsigned with signed numbers can saturate on CPUs without VNNI.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(source)
    del model.graph.value_info[:]  # shapes that no longer hold once the quantiser has transposed weights
    quantize_dynamic(
        model,
        target,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QUInt8,
        use_external_data_format=len(list(source.parent.iterdir())) > 1,
    )


def _write_openvino(source: Path, target: Path, *, int8: bool) -> None:
    import openvino

    model = openvino.Core().read_model(source)
    if int8:
        for node in model.get_ops():
            if node.get_type_name() == "MatMul" and node.input_value(1).get_node().get_type_name() == "Constant":
                _compress_weight(node)
    openvino.save_model(model, target, compress_to_fp16=False)


def _compress_weight(product: "openvino.Node") -> None:
    """Store a constant factor as 8-bit numbers, each output by its own scale and zero point."""
    from openvino import opset13 as ops

    weight = np.array(product.input_value(1).get_node().data)
    axis = -1 if product.get_attributes()["transpose_b"] else -2
    low, high = weight.min(axis, keepdims=True).clip(max=0), weight.max(axis, keepdims=True).clip(min=0)
    scale = np.maximum((high - low) / 255, np.finfo(np.float32).tiny)
    zero = np.rint(-low / scale)
    numbers = np.clip(np.rint(weight / scale) + zero, 0, 255).astype(np.uint8)
    centred = ops.subtract(
        ops.convert(ops.constant(numbers), "f32"), ops.convert(ops.constant(zero.astype(np.uint8)), "f32")
    )
    product.input(1).replace_source_output(ops.multiply(centred, ops.constant(scale)).output(0))


def _measure(encoder: Encoder, run: standalone.Run) -> Difference:
    wanted = encoder.embed(_SAMPLE)
    input_ids, mask = pad(encoder.tokens(_SAMPLE)[0], pad_id=encoder.tokens.pad_id)
    found = run(input_ids.numpy(), mask.numpy())
    error = np.abs(found - wanted).max() / max(1.0, np.abs(wanted).max())
    lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(found, axis=1)
    return Difference(float(error), float(((wanted * found).sum(1) / lengths).min()))


def _write_rest(encoder: Encoder, folder: Path, about: dict[str, Any], difference: Difference) -> None:
    """Write settings, tokenizer, the script that needs no Tercet, and a page that explains all of it."""
    tokens = encoder.tokens
    tokens.tokenizer.save_pretrained(folder)
    before, after = tokens.frame
    settings = about | {
        **encoder.settings.model_dump(),
        **describe_readout(encoder.head.readout),
        "prompts": encoder.prompts,
        "dims": encoder.dim,
        "lowercase": tokens.lowercase,
        "prefix": tokens.prompt.prefix,
        "ids_before": before,
        "ids_after": after,
        "pad_id": tokens.pad_id,
        "num_parameters": encoder.num_parameters,
        "source": encoder.fingerprint(),
        "max_error": difference.max_error,
        "min_cosine": difference.min_cosine,
        "tercet": version("tercet"),
    }
    write_json(folder / EXPORT_FILE, settings)
    alone = (folder / "tokenizer.json").exists()  # ByT5 has none: its ids are bytes
    if alone:
        shutil.copyfile(standalone.__file__, folder / "embed.py")
    (folder / "README.md").write_text(_page(settings, alone=alone), encoding="utf-8")


def _page(settings: dict[str, Any], *, alone: bool) -> str:
    runtime = RUNTIMES[settings["format"]]
    difference = f"The largest difference from the model's own vectors was {settings['max_error']:.1e}."
    if settings["int8"]:
        difference = f"The lowest cosine with the model's own vectors was {settings['min_cosine']:.4f}."
        if settings["format"] == "onnx":
            difference += (
                "\nActivations are quantised for a whole batch: a vector depends a little on the texts beside it."
            )
    script = f"""
Without Tercet:

    pip install numpy tokenizers {runtime}
    python embed.py "A man plays a guitar." "Somebody makes music."
"""
    return f"""# A sentence encoder for {runtime}

`{settings["graph"]}` takes `input_ids` and `attention_mask`, int64 [batch, length], up to {settings["max_tokens"]}
tokens a text, and gives `sentence_embedding`, float32 [batch, {settings["dims"]}].
`exported.json` says how a text becomes ids.

Measured on {len(_SAMPLE)} sentences when it was exported: {difference}
{script if alone else ""}
With Tercet:

    pip install 'tercet[{settings["format"]}]'
    tercet embed sentences.txt --model THIS_FOLDER --out vectors.npy
"""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings and log lines of the exporters: what matters of them is measured here."""
    level, handler = logging.root.manager.disable, logging.NullHandler()
    logging.root.addHandler(handler)  # without one, the quantiser's first line would set up logging to the screen
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(level)
        logging.root.removeHandler(handler)
