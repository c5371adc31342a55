"""`tercet adapt`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, tables
from tercet.storage.choices import DEFAULT_MODEL, DEFAULT_PLAN, DEFAULT_SYNTHESIZER, AdaptPlan

EXAMPLES = options.examples(
    "tercet adapt examples/town.txt --out adapted",
    "tercet adapt reviews.csv --column body --eval my-pairs.tsv --out adapted",
    "tercet adapt reviews.csv --column body --label 50 --out adapted",
    "tercet adapt manuals.txt --split --plan mixture --out adapted",
    "tercet adapt sentences.txt --plan gense --model t5-base --out adapted",
)


def adapt(
    sentences: Annotated[
        list[str],
        typer.Argument(metavar="SENTENCES...", help="Files with a sentence per row, or hub:ID#CONFIG@SPLIT."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A folder for encoder/, report.html, report.md, adapt.json and run/.")
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="The encoder to start from: an embedded name, a folder, or a hub id.")
    ] = DEFAULT_MODEL,
    plan: Annotated[
        AdaptPlan,
        typer.Option(
            metavar="NAME",
            help="How to learn: train on titles that a synthesizer writes, reweight directions by parts of texts, or "
            "both; train on spans of the texts, a mixture, or (gense) triplets. auto: titles, and reweight where a "
            "quarter of the texts have several sentences.",
        ),
    ] = DEFAULT_PLAN,
    synthesizer: Annotated[
        str, typer.Option(help="What writes titles and triplets: an embedded name, a folder, or a hub id.")
    ] = DEFAULT_SYNTHESIZER,
    evals: Annotated[
        list[str] | None,
        typer.Option(
            "--eval",
            metavar="FILE",
            help="Your own rows, which decide whether the result is kept. A file with columns (FILE, or KIND:FILE).",
        ),
    ] = None,
    keep_anyway: Annotated[
        bool, typer.Option("--keep-anyway", help="Keep the result even where it is not better than the start.")
    ] = False,
    label: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Ask N questions instead, which make OUT/labels/rerank.tsv, a file for --eval."
        ),
    ] = None,
    form: Annotated[
        bool, typer.Option("--form", help="With --label: write the questions to a file to fill in, even in a terminal.")
    ] = False,
    split: Annotated[bool, typer.Option("--split", help="Split documents into sentences first.")] = False,
    column: options.Column = None,
    max_sentences: Annotated[int | None, typer.Option(min=1, help="The most sentences from each source.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="What everything is drawn with.")] = 0,
    changes: options.Changes = None,
    data: options.Data = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    _threads: options.Threads = None,
) -> None:
    """Make an encoder better on your own texts, without labels. After a kill, the same command goes on."""
    files = [name if name.startswith("hub:") else Path(name) for name in sentences]
    if label is not None:
        ask = input if sys.stdin.isatty() and not form else None
        made = tercet.label(
            files, out, num=label, model=model, column=column, max_sentences=max_sentences, seed=seed, ask=ask
        )
        tables.print_labels(made)
        return
    adapted = tercet.adapt(
        files,
        out,
        model=model,
        plan=plan,
        synthesizer=synthesizer,
        evals=evals or (),
        keep_anyway=keep_anyway,
        split=split,
        column=column,
        max_sentences=max_sentences,
        seed=seed,
        changes=changes or (),
        data=data,
        engine=options.chosen_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    tables.print_adaptation(adapted)
