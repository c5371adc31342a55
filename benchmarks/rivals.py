"""The contestants of embed.py, each in a process of its own: text in, vectors out, tokenisation included.

    python benchmarks/rivals.py NAME TEXTS_FILE EVERY

sentence-transformers runs at its defaults. The engines that only run a graph get batches of 32, sorted by length and
padded to the longest; readout, projection and normalisation are part of the graph where the engine allows it.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers import THREADS, serve

BATCH = 32

Vectors = NDArray[np.float32]
Embed = Callable[[list[str]], Vectors]
Batch = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ids and mask, padded."""
Engine = Callable[[Iterator[Batch]], Iterable[Vectors]]


class SentenceTransformers:
    """The reference: `encode` with nothing asked for."""

    def __init__(self, folder: Path, _texts: list[str], *, dtype: str) -> None:
        self.model = sentence_transformer(folder, dtype=dtype)
        self.padded_tokens = 0
        self.model[0].register_forward_pre_hook(self._count)

    def _count(self, _module: Any, inputs: tuple[Any, ...]) -> None:
        self.padded_tokens += inputs[0]["input_ids"].numel()

    def __call__(self, texts: list[str]) -> Vectors:
        """Embed texts."""
        self.padded_tokens = 0
        return np.asarray(self.model.encode(texts, show_progress_bar=False))


class Sorted:
    """An engine that takes padded batches, given them in the best order: by length, the longest first."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        limits = json.loads((folder / "sentence_bert_config.json").read_text())
        self.tokenizer.enable_truncation(limits["max_seq_length"])
        self.engine = engine
        self.padded_tokens = 0

    def __call__(self, texts: list[str]) -> Vectors:
        """Embed texts."""
        order, batches = self.batches(texts)
        return np.concatenate(list(self.engine(batches)))[np.argsort(order)]

    def batches(self, texts: list[str]) -> tuple[list[int], Iterator[Batch]]:
        """Return the order that texts are taken in, and the batches."""
        self.padded_tokens = 0
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        rows = [ids[i] for i in order]
        return order, (self._pad(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH))

    def _pad(self, rows: list[list[int]]) -> Batch:
        ids = np.zeros((len(rows), len(rows[0])), np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        self.padded_tokens += ids.size
        return ids, mask


def sentence_transformer(folder: Path, **model_kwargs: Any) -> Any:
    """Load the model with sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(THREADS)
    return SentenceTransformer(str(folder), device="cpu", model_kwargs=model_kwargs)


def graph(folder: Path, **model_kwargs: Any) -> tuple[Any, Any]:
    """Return the whole model as a torch module of ids and mask, and an example of its inputs."""
    import torch

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = sentence_transformer(folder, **model_kwargs)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            return self.model({"input_ids": input_ids, "attention_mask": attention_mask})["sentence_embedding"]

    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    return Graph().eval(), (5 * mask, mask)


def load_tercet(folder: Path, _texts: list[str], *, precision: str) -> Embed:
    """Ours, with nothing else asked for than a precision."""
    import torch

    from tercet import Encoder

    torch.set_num_threads(THREADS)
    encoder = Encoder.load(folder, device="cpu")
    encoder.resolve_precision(precision)  # says at once where there is none of that name
    return lambda texts: encoder.embed(texts, precision=precision)


def load_onnx(folder: Path, _texts: list[str], *, int8: bool) -> Embed:
    """ONNX Runtime, int8 by dynamic quantisation."""
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    file, names = folder / f"{'int8' if int8 else 'fp32'}.onnx", ["input_ids", "attention_mask"]
    model, example = graph(folder, attn_implementation="eager")
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    shapes = {name: axes for name in names}
    torch.onnx.export(model, example, file, input_names=names, dynamic_shapes=shapes, dynamo=True, verbose=False)
    if int8:
        _forget_shapes(file)
        # without VNNI, products of full 8-bit numbers saturate
        no_vnni = "vnni" not in Path("/proc/cpuinfo").read_text()
        target = file.with_suffix(".quantised.onnx")
        quantize_dynamic(file, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=no_vnni)
        file = target
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(file, options)
    return Sorted(folder, lambda batches: (session.run(None, dict(zip(names, b, strict=True)))[0] for b in batches))


def _forget_shapes(file: Path) -> None:
    """Remove the exporter's notes on shapes, which the quantiser finds contradictory."""
    import onnx

    model = onnx.load(file)
    del model.graph.value_info[:]
    onnx.save(model, file, save_as_external_data=True, location=f"{file.name}.data")


def load_openvino(folder: Path, texts: list[str], *, int8: bool) -> Embed:
    """OpenVINO with a stream a thread, which is faster than one stream; int8 by static quantisation (NNCF)."""
    import openvino as ov

    def run(batches: Iterator[Batch]) -> list[Vectors]:
        found: dict[int, Vectors] = {}
        queue.set_callback(lambda request, i: found.update({i: request.get_output_tensor().data.copy()}))
        for i, batch in enumerate(batches):
            queue.start_async(list(batch), i)
        queue.wait_all()
        return [found[i] for i in sorted(found)]

    embed = Sorted(folder, run)
    model, example = graph(folder)
    converted = ov.convert_model(model, example_input=example)
    settings = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": THREADS}
    if int8:
        import nncf

        sample = nncf.Dataset(list(embed.batches(texts[:300])[1]))
        converted = nncf.quantize(converted, sample, model_type=nncf.ModelType.TRANSFORMER)
    else:
        settings["INFERENCE_PRECISION_HINT"] = "f32"  # it would take bf16 where the processor has it
    queue = ov.AsyncInferQueue(ov.Core().compile_model(converted, "CPU", settings), THREADS)
    return embed


def load_ctranslate2(folder: Path, _texts: list[str], *, compute_type: str) -> Embed:
    """CTranslate2. Its converter makes only whole T5 models, so its parts are put together for an encoder alone."""
    import ctranslate2
    from ctranslate2.converters.transformers import _SUPPORTED_ACTIVATIONS, T5Loader
    from ctranslate2.specs.transformer_spec import TransformerEncoderModelSpec, TransformerEncoderSpec
    from safetensors.numpy import load_file
    from transformers import AutoTokenizer, T5EncoderModel

    model, loader = T5EncoderModel.from_pretrained(folder).requires_grad_(False), T5Loader()
    config = model.config
    encoder = TransformerEncoderSpec(
        config.num_layers,
        config.num_heads,
        pre_norm=True,
        activation=_SUPPORTED_ACTIVATIONS[config.dense_act_fn],
        ffn_glu=config.is_gated_act,
        relative_attention_bias=True,
        rms_norm=True,
    )
    loader.set_stack(encoder, model.encoder)
    spec = TransformerEncoderModelSpec(encoder)
    spec.register_vocabulary(loader.get_vocabulary(model, AutoTokenizer.from_pretrained(folder)))
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.validate()
    spec.optimize()
    target = folder / "ctranslate2"
    target.mkdir(exist_ok=True)
    spec.save(str(target))
    engine = ctranslate2.Encoder(str(target), compute_type=compute_type, inter_threads=1, intra_threads=THREADS)
    (projection,) = load_file(folder / "2_Dense" / "model.safetensors").values()

    def run(batches: Iterator[Batch]) -> Iterator[Vectors]:
        for ids, mask in batches:
            lengths = mask.sum(axis=1)
            inputs = (ctranslate2.StorageView.from_array(x.astype(np.int32)) for x in (ids, lengths))
            hidden = np.array(engine.forward_batch(*inputs).last_hidden_state)
            mean = np.einsum("btd,bt->bd", hidden, mask.astype(np.float32)) / lengths[:, None]
            vectors = mean @ projection.T
            yield (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    return Sorted(folder, run)


@dataclass(frozen=True)
class Contestant:
    """Who takes part, and what is needed for it."""

    load: Callable[[Path, list[str]], Embed]
    """From the model's folder and the texts, of which static quantisation needs a sample."""
    precision: str
    """`fp32`, `bf16` or `int8`: what its vectors and its share of the peak are judged by."""
    packages: tuple[str, ...] = ()
    model: str = "enc"
    """`enc`: the mean of the encoder; `encdec`: the first decoder output."""


ST = ("sentence_transformers>=6.2",)
ONNX = ("onnx>=1.23", "onnxscript>=0.7", "onnxruntime>=1.31")
OPENVINO = ("openvino>=2026.4", "nncf>=3.4")
CTRANSLATE2 = ("ctranslate2>=4.8",)

CONTESTANTS = {
    "st_fp32": Contestant(partial(SentenceTransformers, dtype="float32"), "fp32", ST),
    "exact": Contestant(partial(load_tercet, precision="exact"), "fp32"),
    "fast": Contestant(partial(load_tercet, precision="fast"), "bf16"),
    "int8": Contestant(partial(load_tercet, precision="int8"), "int8"),
    "encdec_exact": Contestant(partial(load_tercet, precision="exact"), "fp32", model="encdec"),
    "encdec_fast": Contestant(partial(load_tercet, precision="fast"), "bf16", model="encdec"),
    "encdec_int8": Contestant(partial(load_tercet, precision="int8"), "int8", model="encdec"),
    "st_bf16": Contestant(partial(SentenceTransformers, dtype="bfloat16"), "bf16", ST),
    "onnx_fp32": Contestant(partial(load_onnx, int8=False), "fp32", ONNX),
    "onnx_int8": Contestant(partial(load_onnx, int8=True), "int8", ONNX),
    "openvino_fp32": Contestant(partial(load_openvino, int8=False), "fp32", OPENVINO),
    "openvino_int8": Contestant(partial(load_openvino, int8=True), "int8", OPENVINO),
    "ctranslate2_int8": Contestant(partial(load_ctranslate2, compute_type="int8"), "int8", CTRANSLATE2),
}
REFERENCE = "st_fp32"


def main(name: str, texts_file: str, every: str) -> None:
    """Be a contestant: `load` a folder, then `vectors`, then `run` as often as asked; EVERY 16 takes one text of 16."""
    texts = json.loads(Path(texts_file).read_text(encoding="utf-8"))[:: int(every)]
    embeds: list[Embed] = []

    def load(folder: str) -> dict[str, Any]:
        embeds.clear()  # two models at once would be one too many
        embeds.append(CONTESTANTS[name].load(Path(folder), texts))
        packages = [package.partition(">")[0] for package in CONTESTANTS[name].packages]
        return {"versions": {package: version(package) for package in packages}}

    def vectors(file: str, first: int) -> dict[str, Any]:
        np.save(file, embeds[0](texts[: -(-first // int(every))]))
        return {}

    def run() -> dict[str, Any]:
        start = time.perf_counter()
        embeds[0](texts)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "padded_tokens": getattr(embeds[0], "padded_tokens", None)}

    serve({"load": load, "vectors": vectors, "run": run})


if __name__ == "__main__":
    main(*sys.argv[1:])
