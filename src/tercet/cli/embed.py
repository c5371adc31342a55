"""`tercet embed`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options
from tercet.storage.choices import DEFAULT_MODEL, OnTruncate

EXAMPLES = options.examples(
    "tercet embed sentences.txt --out vectors.npy",
    "tercet embed reviews.csv --column body --out vectors.parquet",
    "cat sentences.txt | tercet embed - --out vectors.jsonl",
    "tercet embed 'texts/*.jsonl' --out vectors/ --workers 8",
    "tercet embed 's3://bucket/texts/*.jsonl' --out /shared/vectors/ --engine ray --address auto",
    "tercet embed sentences.txt --model t5-base --set readout=enc-mean --out vectors.npy",
)


def embed(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="A file with one text per row, or - for stdin.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Where to: .npy (vectors), .parquet or .jsonl (texts and vectors), or a folder."
        ),
    ],
    model: options.Model = DEFAULT_MODEL,
    settings: options.Settings = None,
    column: options.Column = None,
    file_format: options.Format = None,
    precision: options.Precision = "exact",
    dims: options.Dims = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="The most tokens that are computed at once (2048, or what a GPU holds).")
    ] = None,
    shard_texts: Annotated[
        int, typer.Option(help="How many texts are embedded between two commits; a killed run loses no more.")
    ] = 8192,
    on_truncate: Annotated[OnTruncate, typer.Option(help="Texts that are too long: count them, or error.")] = "count",
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
) -> None:
    """Embed a file of texts. After a kill, the same command goes on where it stopped."""
    stats = tercet.embed(
        source,
        out=out,
        model=options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        column=column,
        format=file_format,
        precision=precision,
        dims=dims,
        max_batch_tokens=batch_tokens,
        on_truncate=on_truncate,
        shard_texts=shard_texts,
        engine=options.chosen_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    cut = f", {stats.num_truncated:,} cut to {stats.max_tokens} tokens" if stats.num_truncated else ""
    options.say(f"{stats.num_texts:,} texts, {stats.num_tokens:,} tokens{cut}: {out}")
    if stats.shards is not None:
        options.say(options.summary(stats.shards))
