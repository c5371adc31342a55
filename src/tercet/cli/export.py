"""`tercet export`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, output
from tercet.storage.choices import DEFAULT_MODEL, GraphFormat

EXAMPLES = options.examples(
    "tercet export --format onnx --out exported",
    "tercet export --model my-encoder --format openvino --int8 --out exported-int8",
    "tercet embed sentences.txt --model exported --out vectors.npy",
)


def export(
    graph_format: Annotated[GraphFormat, options.choice(GraphFormat, "--format", help="What runs the graph.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder: graph, tokenizer, settings, and a script that runs it.")
    ],
    model: options.Model = DEFAULT_MODEL,
    int8: Annotated[bool, typer.Option("--int8", help="Store the weights of matrix products in 8 bits.")] = False,
    settings: options.Settings = None,
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    force: options.Force = False,
) -> None:
    """Write an encoder as a graph that runs without Tercet, in ONNX Runtime or OpenVINO."""
    difference = tercet.export(
        options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        out,
        format=graph_format,
        int8=int8,
        force=force,
    )
    output.say(
        f"{out}: on sample texts the largest difference is {difference.max_error:.1e}, "
        f"the lowest cosine {difference.min_cosine:.4f}"
    )
