"""`tercet train`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, tables
from tercet.storage.choices import Logger

EXAMPLES = options.examples(
    "tercet train recipes/mini/st5-enc-mean-nli.yaml --run runs/mini",
    "tercet train recipes/st5-enc-mean-nli.yaml --run runs/large --set start=t5-large --set stages.0.batch=256",
    "tercet train recipes/gense-qa.yaml --run runs/gense-qa --dry-run",
    "tercet train recipes/mini/parallel-zh-from-minilm.yaml --run runs/zh",
    "tercet train recipes/flan/st5-nli.yaml --run runs/readouts --sweep encoder.readout=enc-mean,enc-first "
    "--sweep seed=0,1,2",
    "torchrun --nproc-per-node 2 -m tercet train recipes/gense-qa.yaml --out runs/gense-qa",
)


def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML file: where to start, the stages, what to evaluate.")],
    run: Annotated[
        Path,
        typer.Option(
            "--run",
            "--out",  # torchrun takes --run for the start of an option of its own
            "-o",
            help="A folder for checkpoints, the log, the encoder and the results.",
        ),
    ],
    changes: options.Changes = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="PATH=A,B", help="A setting with several values; every combination is run."),
    ] = None,
    data: options.Data = None,
    env: options.Env = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the recipe, print it resolved, and stop.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace encoder and results of a finished run of other settings.")
    ] = False,
    loggers: Annotated[
        list[str] | None, options.choice(Logger, "--log", help="Where else the log goes; repeatable.")
    ] = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    _threads: options.Threads = None,
) -> None:
    """Train an encoder by a recipe. Killed and started again, it goes on and ends with the same weights."""
    result = tercet.train(
        recipe,
        run,
        changes=changes or [],
        sweep=sweep or [],
        data=data,
        env=env or [],
        dry_run=dry_run,
        force=force,
        loggers=loggers or (),
        engine=options.chosen_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    for one in getattr(result, "runs", {"": result}).values():
        if dry_run:
            typer.echo(one.recipe.as_yaml(), nl=False)
        elif one.is_main:
            tables.print_run(one)
