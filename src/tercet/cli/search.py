"""`tercet search`."""

from typing import Annotated

import typer

import tercet
from tercet.cli import options, tables
from tercet.storage.choices import DEFAULT_MODEL

EXAMPLES = options.examples(
    'tercet search "how do I reset my password" --in faq.txt',
    'tercet search "broken screen" --in reviews.csv --column body -k 10 --json',
    'tercet search "broken screen" --in vectors.parquet',
)


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    source: Annotated[
        str,
        typer.Option(
            "--in", help="A file of texts, - for stdin, or vectors that embed wrote: a .parquet file, or a folder."
        ),
    ],
    model: options.Model = DEFAULT_MODEL,
    k: Annotated[int, typer.Option("-k", help="How many texts to show.")] = 5,
    settings: options.Settings = None,
    column: options.Column = None,
    file_format: options.Format = None,
    precision: options.Precision = "exact",
    dims: options.Dims = None,
    cache: Annotated[bool, typer.Option(help="Keep the vectors beside the file for the next search.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines instead of a table.")] = False,
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    _threads: options.Threads = None,
) -> None:
    """Find the texts that are nearest to a query, by exact cosine."""
    hits = tercet.search(
        query,
        source,
        model=options.chosen_model(model, settings, tokenizer, revision, convert_pickle),
        k=k,
        column=column,
        format=file_format,
        precision=precision,
        dims=dims,
        cache=cache,
        progress=True,
    )
    tables.print_hits(hits, as_json)
