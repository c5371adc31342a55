"""`tercet evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, output, tables
from tercet.storage.choices import DEFAULT_MODEL, Classifier

EXAMPLES = options.examples(
    "tercet evaluate --tasks sts,transfer --data eval --out results",
    "tercet evaluate --model t5-base --set readout=enc-mean --tasks sts --data eval --out raw",
    "tercet evaluate --tasks my-pairs.tsv,my-topics.csv",
    "tercet evaluate --model runs/zh/encoder --source minilm --tasks retrieval",
)


def evaluate(
    model: options.Model = DEFAULT_MODEL,
    tasks: Annotated[
        str,
        typer.Option(
            help="Groups (sts, transfer, sentglue, domain, zh), tasks (STS12, MR, geometry, retrieval, speed ...), or "
            "files with columns (FILE, or KIND:FILE), separated by commas."
        ),
    ] = "sts",
    data: options.Data = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A folder for results.json.")] = None,
    settings: options.Settings = None,
    precision: options.Precision = "exact",
    classifier: Annotated[Classifier, options.choice(Classifier, help="sklearn is a cross-check.")] = "batched",
    seed: Annotated[int, typer.Option(help="What folds and batches are drawn with.")] = 1111,
    cache: Annotated[bool, typer.Option(help="Keep vectors for the next evaluation.")] = True,
    source: Annotated[
        str | None,
        typer.Option(help="Another encoder for the source of parallel pairs: English in retrieval."),
    ] = None,
    whiten: Annotated[
        bool, typer.Option("--whiten", help="Centre and whiten the vectors of each task (BERT-whitening).")
    ] = False,
    lengths: Annotated[
        list[int] | None, typer.Option(help="How many words the sentences of `speed` have (8, 32 and 128); repeatable.")
    ] = None,
    batches: Annotated[
        list[int] | None, typer.Option(help="How many of them are embedded at once (1, 8 and 32); repeatable.")
    ] = None,
    dims: Annotated[
        list[int] | None,
        typer.Option(help="Score the first numbers of vectors, too; repeatable: --dims 256 --dims 64."),
    ] = None,
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    force: options.Force = False,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    _threads: options.Threads = None,
) -> None:
    """Score an encoder on the papers' tasks, or on your own files; exit code 1 where nothing could be scored."""
    found = tercet.evaluate(
        options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        tasks=tasks,
        data=data,
        out=out,
        name=model,
        classifier=classifier,
        seed=seed,
        precision=precision,
        cache=cache,
        source=source,
        whiten=whiten,
        lengths=lengths,
        batches=batches,
        dims=dims or (),
        force=force,
        engine=options.chosen_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    tables.print_scores(found)
    if found.advice:
        output.say(found.advice)
        raise typer.Exit(1)
