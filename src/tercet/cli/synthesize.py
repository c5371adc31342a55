"""`tercet synthesize`, and what can be done with its folders: `tercet refilter` and `tercet compare`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options, tables
from tercet.storage.assignments import parse_assignments
from tercet.storage.choices import DEFAULT_SYNTHESIZER, Strategy

EXAMPLES = options.examples(
    "tercet synthesize sentences.txt --out synthetic",
    "tercet synthesize hub:allenai/c4#en --split --set language=en --set max_sentences=100000 "
    "--model mattymchen/nli-synthesizer-t5-base --leaks eval --out synthetic",
    "tercet synthesize sentences.txt --out synthetic --engine ray --address auto --workers 50",
    "tercet synthesize sentences.txt --strategy retrieval --out retrieved",
    "tercet synthesize paragraphs.txt --strategy title --model google/flan-t5-small --out titles",
)
REFILTER_EXAMPLES = options.examples("tercet refilter synthetic --alpha 0.8")
COMPARE_EXAMPLES = options.examples("tercet compare synthetic retrieved")

Alpha = Annotated[float | None, typer.Option(help="The least probability that a pair is what it should be (0.9).")]
Leaks = Annotated[list[Path] | None, typer.Option(help="A file or folder with evaluation texts, which are kept out.")]


def synthesize(
    sentences: Annotated[
        list[str],
        typer.Argument(
            metavar="SENTENCES...",
            help="Files with a sentence per row, or datasets (hub:ID#CONFIG@SPLIT), which are streamed.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="A folder for candidates/, triplets.jsonl, audit.json and rejects.jsonl."),
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="A synthesizer: an embedded name, a model folder, or a hub id.")
    ] = DEFAULT_SYNTHESIZER,
    strategy: Annotated[
        Strategy,
        options.choice(Strategy, help="What is written for each sentence, or found; `title` is for search."),
    ] = "generate",
    split: Annotated[bool, typer.Option("--split", help="Split documents into sentences first.")] = False,
    alpha: Alpha = None,
    leaks: Leaks = None,
    there: Annotated[
        list[str] | None, typer.Option(help="For backtranslation: the model into another language (may be repeated).")
    ] = None,
    back: Annotated[
        list[str] | None, typer.Option(help="For backtranslation: the model back, one for each --there.")
    ] = None,
    column: options.Column = None,
    seed: Annotated[int, typer.Option(min=0, help="What texts are drawn with.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting: num_samples, top_p, language ..."),
    ] = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    workers: options.Workers = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    _threads: options.Threads = None,
) -> None:
    """Make triplets from sentences: write, judge, filter. After a kill, the same command goes on."""
    made = tercet.synthesize(
        [name if name.startswith("hub:") else Path(name) for name in sentences],
        out,
        model=model,
        strategy=strategy,
        split=split,
        alpha=alpha,
        leaks=leaks or (),
        there=there,
        back=back,
        column=column,
        seed=seed,
        settings=parse_assignments(settings or []),
        engine=options.chosen_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    tables.print_synthesis(made)


def refilter(
    folder: Annotated[Path, typer.Argument(help="A folder that `tercet synthesize` wrote.")],
    alpha: Alpha = None,
    leaks: Leaks = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the filter: containment, deduplicate ..."),
    ] = None,
    _threads: options.Threads = None,
) -> None:
    """Filter the candidates of a folder again, by other rules. Nothing is generated."""
    tables.print_synthesis(
        tercet.refilter(folder, alpha=alpha, leaks=leaks, settings=parse_assignments(settings or []))
    )


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `tercet synthesize` wrote.")],
) -> None:
    """Show what several folders have for the same sentences, as in GenSE's Table 9."""
    tables.print_comparison(tercet.compare(folders))
