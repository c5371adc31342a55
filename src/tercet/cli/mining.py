"""`tercet dedup`, `tercet cluster`, `tercet mine`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import listings, options
from tercet.storage.choices import DEFAULT_MODEL, Mined

DEDUP_EXAMPLES = options.examples(
    "tercet dedup sentences.txt --out unique.txt",
    "tercet dedup reviews.csv --column body --threshold 0.95 --out groups.jsonl",
)
CLUSTER_EXAMPLES = options.examples(
    "tercet cluster questions.txt --out clusters.jsonl --map map.html",
    "tercet cluster questions.txt --threshold 0.6 --min-size 5",
)
MINE_EXAMPLES = options.examples(
    "tercet mine sentences.txt --min-score 0.8 --out paraphrases.jsonl",
    "tercet mine pairs.tsv --find negatives --relative-margin 0.05 --out triplets.jsonl",
    "tercet mine english.txt french.txt --find translations --model my-encoder --out pairs.jsonl",
)

Input = Annotated[str, typer.Argument(metavar="INPUT", help="A file with one text per row, or - for stdin.")]


def dedup(
    source: Input,
    out: Annotated[Path | None, typer.Option("--out", "-o", help=".jsonl with groups, or only the texts.")] = None,
    threshold: Annotated[float, typer.Option(help="From which cosine on a text repeats another.")] = 0.9,
    model: options.Model = DEFAULT_MODEL,
    settings: options.Settings = None,
    column: options.Column = None,
    file_format: options.Format = None,
    precision: options.Precision = "exact",
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    _threads: options.Threads = None,
) -> None:
    """Keep the first of texts that say nearly the same."""
    found = tercet.dedup(
        source,
        out=out,
        threshold=threshold,
        model=options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        column=column,
        format=file_format,
        precision=precision,
        progress=True,
    )
    listings.print_groups(found)


def cluster(
    source: Input,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A JSONL file, one cluster per line.")] = None,
    map_file: Annotated[Path | None, typer.Option("--map", help="An HTML file with a map of the texts.")] = None,
    threshold: Annotated[float, typer.Option(help="The least cosine with the center.")] = 0.75,
    min_size: Annotated[int, typer.Option(help="The least number of texts.")] = 10,
    model: options.Model = DEFAULT_MODEL,
    settings: options.Settings = None,
    column: options.Column = None,
    file_format: options.Format = None,
    precision: options.Precision = "exact",
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    _threads: options.Threads = None,
) -> None:
    """Find groups of texts about the same thing, and name them by their telling words."""
    found = tercet.cluster(
        source,
        out=out,
        map=map_file,
        threshold=threshold,
        min_size=min_size,
        model=options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        column=column,
        format=file_format,
        precision=precision,
        progress=True,
    )
    listings.print_clusters(found)


def mine(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="A file of texts; of pairs, for negatives.")],
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="The other language; or more texts for negatives.")
    ] = None,
    find: Annotated[Mined, options.choice(Mined, help="What to look for.")] = "paraphrases",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A JSONL file that training reads.")] = None,
    model: options.Model = DEFAULT_MODEL,
    k: Annotated[int | None, typer.Option("-k", help="Neighbours of each text: 100, or 4 in translations.")] = None,
    max_rows: Annotated[int, typer.Option(help="The most paraphrases.")] = 500_000,
    min_score: Annotated[float | None, typer.Option(help="Leave out what has a lower score.")] = None,
    max_score: Annotated[float | None, typer.Option(help="Leave out negatives with a higher cosine.")] = None,
    num_negatives: Annotated[int, typer.Option(help="The most negatives of a pair.")] = 3,
    min_rank: Annotated[int, typer.Option(help="How many of the nearest are skipped as negatives.")] = 0,
    max_rank: Annotated[int | None, typer.Option(help="The last rank of a negative.")] = None,
    margin: Annotated[float | None, typer.Option(help="How far below the positive's cosine negatives are.")] = None,
    relative_margin: Annotated[float | None, typer.Option(help="The same as a share of that cosine.")] = None,
    settings: options.Settings = None,
    column: options.Column = None,
    file_format: options.Format = None,
    precision: options.Precision = "exact",
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    _threads: options.Threads = None,
) -> None:
    """Find rows to train on: paraphrases, hard negatives, or translations."""
    found = tercet.mine(
        source,
        other,
        find=find,
        out=out,
        model=options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        k=k,
        max_rows=max_rows,
        min_score=min_score,
        max_score=max_score,
        num_negatives=num_negatives,
        min_rank=min_rank,
        max_rank=max_rank,
        margin=margin,
        relative_margin=relative_margin,
        column=column,
        format=file_format,
        precision=precision,
        progress=True,
    )
    listings.print_mined(found)
