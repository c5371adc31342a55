"""`tercet embed`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, output
from tercet.storage.choices import DEFAULT_MODEL, Dtype

EXAMPLES = options.examples(
    "tercet embed sentences.txt --out vectors.npy",
    "tercet embed reviews.csv --column body --out vectors.parquet",
    "tercet embed 'pages/*.jsonl' --keep id,url --dtype int8 --out vectors.parquet",
    "cat sentences.txt | tercet embed - --out - | head -n 1",
    "tercet embed 'texts/*.jsonl' --out vectors/ --workers 8",
    "tercet embed 's3://bucket/texts/*.jsonl' --out /shared/vectors/ --engine ray --address auto",
    "tercet embed sentences.txt --model t5-base --set readout=enc-mean --out vectors.npy",
)


def embed(
    sources: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Files with one text per row, patterns, or - for stdin.")
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="TARGET",
            help="A file (.npy: vectors; .parquet, .jsonl: texts, too), a folder/ of Parquet shards, or - for JSONL.",
        ),
    ],
    model: options.Model = DEFAULT_MODEL,
    settings: options.Settings = None,
    column: options.Column = None,
    file_format: options.Format = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMNS", help="Other columns that go along: id,url or all (.parquet, .jsonl)."),
    ] = None,
    dtype: Annotated[
        Dtype, options.choice(Dtype, help="How numbers are written; int8 has a scale for each vector.")
    ] = "float32",
    precision: options.Precision = "exact",
    dims: options.Dims = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="The most tokens that are computed at once (2048, or what a GPU holds).")
    ] = None,
    shard_texts: Annotated[
        int, typer.Option(help="How many texts are embedded between two commits; a killed run loses no more.")
    ] = 8192,
    on_truncate: options.Truncation = "count",
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    _threads: options.Threads = None,
) -> None:
    """Embed files of texts. After a kill, the same command goes on where it stopped."""
    stats = tercet.embed(
        sources[0] if len(sources) == 1 and ":" in sources[0] else [Path(name) for name in sources],
        out=out,
        model=options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        column=column,
        format=file_format,
        keep=[name.strip() for names in keep or [] for name in names.split(",")],
        dtype=dtype,
        precision=precision,
        dims=dims,
        max_batch_tokens=batch_tokens,
        on_truncate=on_truncate,
        shard_texts=shard_texts,
        engine=options.chosen_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    cut = f", {stats.num_truncated:,} cut to {stats.max_tokens} tokens" if stats.num_truncated else ""
    output.say(f"{stats.num_texts:,} texts, {stats.num_tokens:,} tokens{cut}: {out}")
    if stats.shards is not None:
        output.say(options.summary(stats.shards))
