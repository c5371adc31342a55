"""Options that several commands share, and what becomes of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from tercet.errors import SettingError
from tercet.storage.assignments import parse_assignments
from tercet.storage.choices import EngineName, OnTruncate, TextFormat
from tercet.storage.choices import Precision as PrecisionName
from tercet.storage.threads import THREADS_VARIABLE, use_threads


def choice(kind: Any, *names: str, help: str) -> Any:
    """Return an option for one of the names of a Literal; its help lists them, in less room than a metavar takes."""
    return typer.Option(*names, metavar="NAME", help=f"{help} One of: {', '.join(get_args(kind))}.")


Model = Annotated[
    str, typer.Option("--model", "-m", help="An embedded name (mini, minilm), a model folder, or a hub id.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An encoder setting: readout, prompt, projection, max_tokens ..."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="A setting of the recipe: seed, start, stages.nli.batch ..."),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME", help="A variable that the recipe may use; TERCET_* are always allowed."),
]
Tokenizer = Annotated[str | None, typer.Option(help="Another tokenizer than the model's own: a folder or hub id.")]
Revision = Annotated[str | None, typer.Option(help="The branch, tag or commit on the hub.")]
ConvertPickle = Annotated[
    bool, typer.Option("--convert-pickle", help="Convert a pickled checkpoint once, weights only.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what else is there, and would be lost.")]
Column = Annotated[str | None, typer.Option(help="The column with the text (JSONL, CSV, TSV, Parquet).")]
Format = Annotated[TextFormat | None, choice(TextFormat, "--format", help="Where the file's ending does not tell.")]
Precision = Annotated[PrecisionName, choice(PrecisionName, help="exact is fp32, fast is bf16; fp16 is not for T5.")]
Truncation = Annotated[OnTruncate, choice(OnTruncate, help="What happens to texts that are too long.")]
Dims = Annotated[int | None, typer.Option(help="Keep only the first numbers of each vector.")]
Engine = Annotated[
    EngineName, typer.Option("--engine", help="local: this process; ray: several, here or on a cluster.")
]
Address = Annotated[
    str | None, typer.Option(help="A running Ray: auto, HOST:PORT or ray://HOST:PORT. Without it, Ray starts here.")
]
Workers = Annotated[int | None, typer.Option(min=1, help="How many workers; as many as fit. On one machine, too.")]
CpusPerWorker = Annotated[float | None, typer.Option(help="CPUs and threads of each worker (1).")]
GpusPerWorker = Annotated[float | None, typer.Option(help="GPUs of each worker (0); 0.5 puts two on one.")]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        envvar=THREADS_VARIABLE,
        callback=lambda number: number and use_threads(number),
        help="How many threads compute; as many as there are cores where not given.",
    ),
]
Data = Annotated[Path | None, typer.Option(help="The evaluation data; $TERCET_DATA/eval where not given.")]


def chosen_model(
    model: str, settings: list[str] | None, tokenizer: str | None, revision: str | None, convert_pickle: bool
) -> dict[str, Any]:
    """Return the encoder that was asked for, as the verbs take it."""
    return {
        "model": model,
        "tokenizer": tokenizer,
        "revision": revision,
        "convert_pickle": convert_pickle,
        "encoder": parse_assignments(settings or []),
    }


def chosen_engine(
    engine: EngineName,
    address: str | None,
    workers: int | None,
    cpus_per_worker: float | None,
    gpus_per_worker: float | None,
) -> str | dict[str, Any]:
    """Return the engine that was asked for, as the verbs take it; who speaks of workers means Ray."""
    given = {
        "address": address,
        "workers": workers,
        "cpus_per_worker": cpus_per_worker,
        "gpus_per_worker": gpus_per_worker,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    return settings or engine


def served_models(
    models: list[str], settings: list[str] | None, tokenizer: str | None, revision: str | None, convert_pickle: bool
) -> dict[str, dict[str, Any]]:
    """Return the encoders that were asked for, by what requests call them."""
    named: dict[str, dict[str, Any]] = {}
    for each in models:
        name, _, model = each.rpartition("=")
        name = name or (Path(model).resolve().name if Path(model).is_dir() else model)
        if name in named:
            raise SettingError(f"--model {each}: another one has the name {name!r}. Name it: --model NAME={model}.")
        named[name] = chosen_model(model, settings, tokenizer, revision, convert_pickle)
    return named


def summary(shards: Mapping[str, Any]) -> str:
    """Return what happened to the shards on a cluster, as a line."""
    slowest = f", slowest {shards['slowest']} ({shards['slowest_s']:.1f} s)" if shards["slowest"] else ""
    lost = f", {shards['num_lost']:,} workers lost" if shards["num_lost"] else ""
    return f"{shards['num']:,} shards, {shards['num_retries']:,} retries{lost}{slowest}"


def examples(*commands: str) -> str:
    """Return the end of a command's help."""
    return "\n\n".join(["Examples:" if len(commands) > 1 else "Example:", *(f"    {command}" for command in commands)])
