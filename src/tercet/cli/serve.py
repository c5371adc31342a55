"""`tercet serve`."""

from pathlib import Path
from typing import Annotated

import typer

import tercet
from tercet.cli import options
from tercet.storage.choices import DEFAULT_MODEL

EXAMPLES = options.examples(
    "tercet serve",
    "tercet serve --model my-encoder --model mini --port 8000",
    "tercet serve --model text-embedding-3-small=mini",
    "tercet serve --host 0.0.0.0 --api-key-file keys.txt",
)


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="[NAME=]MODEL", help="What to serve, and its name in requests; repeat."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; others than this machine's own need a key.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 for one that is free.")] = 8080,
    precision: options.Precision = "exact",
    on_truncate: options.Truncation = "count",
    api_key: Annotated[
        str | None, typer.Option(envvar="TERCET_API_KEY", help="The key that requests must have.")
    ] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="A file with such keys, one per line.")] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Let everybody ask, from other machines too.")] = False,
    cors: Annotated[list[str] | None, typer.Option(metavar="ORIGIN", help="Web pages that may ask; repeat.")] = None,
    max_queue: Annotated[int, typer.Option(help="The most texts that wait; then requests get a 429.")] = 8192,
    max_queue_tokens: Annotated[int, typer.Option(help="The most tokens that wait.")] = 524_288,
    batch_tokens: Annotated[int, typer.Option(help="The most tokens that are computed at once.")] = 2048,
    max_body: Annotated[int, typer.Option(help="The largest body of a request, in bytes.")] = 8_388_608,
    timeout: Annotated[float, typer.Option(help="Seconds until a request is given up.")] = 120,
    client_timeout: Annotated[float, typer.Option(help="Seconds that a client may take to send or to read.")] = 30,
    drain: Annotated[float, typer.Option(help="Seconds for requests under way after SIGTERM.")] = 30,
    access_log: Annotated[bool, typer.Option(help="A line of JSON for each request, without its texts.")] = True,
    settings: options.Settings = None,
    tokenizer: options.Tokenizer = None,
    revision: options.Revision = None,
    convert_pickle: options.ConvertPickle = False,
    _threads: options.Threads = None,
) -> None:
    """Serve encoders over HTTP, as OpenAI's clients ask for them, with a page to try them."""
    tercet.serve(
        options.served_models(model or [DEFAULT_MODEL], settings, tokenizer, revision, convert_pickle),
        host=host,
        port=port,
        precision=precision,
        on_truncate=on_truncate,
        api_key=api_key,
        api_key_file=api_key_file,
        no_auth=no_auth,
        cors=cors or (),
        max_queue=max_queue,
        max_queue_tokens=max_queue_tokens,
        max_batch_tokens=batch_tokens,
        max_body=max_body,
        timeout=timeout,
        client_timeout=client_timeout,
        drain=drain,
        access_log=access_log,
    )
