"""Embed texts with the exported model in this folder.

    python embed.py "A man plays a guitar." "Somebody makes music."

Prints one vector a line, as JSON. Needs numpy, tokenizers, and onnxruntime or openvino.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[Any, Any], Any]
"""Padded token ids and their mask to vectors: int64 [n, length] twice to float32 [n, d]."""


def open_onnx(graph: Path, *, num_threads: int | None = None) -> Run:
    """Open an ONNX graph with ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads or 0
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    return lambda input_ids, mask: session.run(None, {"input_ids": input_ids, "attention_mask": mask})[0]


def open_openvino(graph: Path, *, num_threads: int | None = None) -> Run:
    """Open an OpenVINO graph, to be computed in fp32 also where the CPU has bf16."""
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if num_threads is not None:
        options["INFERENCE_NUM_THREADS"] = str(num_threads)
    request = openvino.Core().compile_model(str(graph), "CPU", options).create_infer_request()
    return lambda input_ids, mask: request.infer({"input_ids": input_ids, "attention_mask": mask})[0].copy()


OPEN = {"onnx": open_onnx, "openvino": open_openvino}


def token_ids(texts: Sequence[str], folder: Path, settings: dict[str, Any]) -> list[list[int]]:
    """Return the ids of each text: special tokens, prefix and text, suffix and special tokens. Only text is cut."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    before, after = settings["ids_before"], settings["ids_after"]
    room = settings["max_tokens"] - len(before) - len(after)
    texts = [settings["prefix"] + text for text in texts]
    if settings["lowercase"]:
        texts = [text.lower() for text in texts]
    return [before + tokenizer.encode(text, add_special_tokens=False).ids[:room] + after for text in texts]


def embed(texts: Sequence[str], folder: Path) -> Any:
    """Return the vectors of texts: float32 [n, d]."""
    settings = json.loads((folder / "exported.json").read_text(encoding="utf-8"))
    rows = token_ids(texts, folder, settings)
    input_ids = np.full((len(rows), max(map(len, rows))), settings["pad_id"], np.int64)
    mask = np.zeros_like(input_ids)
    for i, row in enumerate(rows):
        input_ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    run = OPEN[settings["format"]](folder / settings["graph"])
    return run(input_ids, mask)


if __name__ == "__main__":
    for vector in embed(sys.argv[1:] or ["A man plays a guitar."], Path(__file__).parent):
        sys.stdout.write(json.dumps(vector.tolist()) + "\n")
