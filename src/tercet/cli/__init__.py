"""The command line: parsing only. What a command does is in the module of its name."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tercet.cli.data import data_app
from tercet.cli.tables import print_hits, print_results
from tercet.errors import SettingError, TercetError

if TYPE_CHECKING:
    from tercet.data.rows.texts import TextFile
    from tercet.encoder.model.encoder import Encoder

DEFAULT_MODEL, DEFAULT_SYNTHESIZER = "mini", "mini-synth"

app = typer.Typer(
    name="tercet",
    help="Sentence embeddings with T5-family encoders, and better encoders from unlabelled text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.add_typer(data_app, name="data")

Model = Annotated[
    str, typer.Option("--model", "-m", help="An embedded name (mini, minilm), a model folder, or a hub id.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An encoder setting: readout, prompt, projection, max_tokens ..."),
]
Tokenizer = Annotated[str | None, typer.Option(help="Another tokenizer than the model's own: a folder or hub id.")]
Revision = Annotated[str | None, typer.Option(help="The branch, tag or commit on the hub.")]
ConvertPickle = Annotated[bool, typer.Option(help="Convert a pickled checkpoint once, weights only.")]
Column = Annotated[str | None, typer.Option(help="The column with the text (JSONL, CSV, TSV, Parquet).")]
Format = Annotated[
    str | None, typer.Option("--format", help="lines, jsonl, csv, tsv or parquet, where the ending does not tell.")
]
Precision = Annotated[str, typer.Option(help="exact (fp32), fast (bf16), int8, auto, or fp16 (not for T5).")]
Dims = Annotated[int | None, typer.Option(help="Keep only the first numbers of each vector.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from tercet import __version__

        typer.echo(f"tercet {__version__}")
        raise typer.Exit


@app.callback()
def tercet(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Sentence embeddings with T5-family encoders, and better encoders from unlabelled text."""


@app.command(
    epilog="Examples:\n\n"
    "    tercet embed sentences.txt --out vectors.npy\n\n"
    "    tercet embed reviews.csv --column body --out vectors.parquet\n\n"
    "    cat sentences.txt | tercet embed - --out vectors.jsonl\n\n"
    "    tercet embed sentences.txt --model t5-base --set readout=enc-mean --out vectors.npy"
)
def embed(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="A file with one text a row, or - for stdin.")],
    out: Annotated[Path, typer.Option(help="Where to: .npy (vectors), .parquet or .jsonl (texts and vectors).")],
    model: Model = DEFAULT_MODEL,
    settings: Settings = None,
    column: Column = None,
    file_format: Format = None,
    precision: Precision = "exact",
    dims: Dims = None,
    batch_tokens: Annotated[int, typer.Option(help="The most tokens that are computed at once.")] = 2048,
    shard_texts: Annotated[
        int, typer.Option(help="How many texts are embedded between two commits; a killed run loses no more.")
    ] = 8192,
    on_truncate: Annotated[str, typer.Option(help="Texts that are too long: count them, or error.")] = "count",
    tokenizer: Tokenizer = None,
    revision: Revision = None,
    convert_pickle: ConvertPickle = False,
) -> None:
    """Embed a file of texts. Killed and started again, it goes on where it was."""
    if on_truncate not in ("count", "error"):
        raise SettingError(f"--on-truncate {on_truncate}: there is no such choice. Take count or error.")
    from tercet.vectors.embed import embed_file, writer_for

    writer_for(out)
    with _open_texts(source, column, file_format) as texts:
        encoder = _load(model, settings, tokenizer, revision, convert_pickle)
        stats = embed_file(
            texts,
            encoder,
            out,
            shard_texts=shard_texts,
            precision=precision,
            dims=dims,
            max_batch_tokens=batch_tokens,
            on_truncate="error" if on_truncate == "error" else "count",
            progress=True,
        )
    cut = f", {stats.num_truncated:,} cut to {encoder.tokens.max_tokens} tokens" if stats.num_truncated else ""
    _say(f"{stats.num_texts:,} texts, {stats.num_tokens:,} tokens{cut}: {out}")


@app.command(
    epilog="Examples:\n\n"
    '    tercet search "how do I reset my password" --in faq.txt\n\n'
    '    tercet search "broken screen" --in reviews.csv --column body -k 10 --json'
)
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    source: Annotated[str, typer.Option("--in", help="A file with one text a row, or - for stdin.")],
    model: Model = DEFAULT_MODEL,
    k: Annotated[int, typer.Option("-k", help="How many texts to show.")] = 5,
    settings: Settings = None,
    column: Column = None,
    file_format: Format = None,
    precision: Precision = "exact",
    dims: Dims = None,
    engine: Annotated[str, typer.Option(help="numpy or faiss; both are exact.")] = "numpy",
    cache: Annotated[bool, typer.Option(help="Keep the vectors beside the file for the next search.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines instead of a table.")] = False,
    tokenizer: Tokenizer = None,
    revision: Revision = None,
    convert_pickle: ConvertPickle = False,
) -> None:
    """Find the texts that are nearest to a query, by exact cosine."""
    with _open_texts(source, column, file_format) as texts:
        from tercet.vectors.search import search as search_texts

        encoder = _load(model, settings, tokenizer, revision, convert_pickle)
        hits = search_texts(
            query,
            texts,
            encoder,
            k=k,
            engine=engine,
            cache=cache and texts.path == Path(source),
            precision=precision,
            dims=dims,
            progress=True,
        )
    print_hits(hits, as_json)


@app.command(
    epilog="Examples:\n\n"
    "    tercet evaluate --tasks sts,transfer --data eval --out results\n\n"
    "    tercet evaluate --model t5-base --set readout=enc-mean --tasks sts --data eval --out raw\n\n"
    "    tercet evaluate --tasks scored:my-pairs.tsv,labelled:my-topics.csv\n\n"
    "    tercet evaluate --model runs/zh/encoder --source minilm --tasks retrieval"
)
def evaluate(
    model: Model = DEFAULT_MODEL,
    tasks: Annotated[
        str,
        typer.Option(
            help="Groups (sts, transfer, sentglue, domain, zh), tasks (STS12, MR, geometry, retrieval, speed ...), or "
            "files (scored:FILE, geometry:FILE, paraphrase:FILE, rerank:FILE, labelled:FILE, triplets:FILE, "
            "parallel:FILE), separated by commas."
        ),
    ] = "sts",
    data: Annotated[Path | None, typer.Option(help="The evaluation data; $TERCET_DATA/eval where not given.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for results.json.")] = None,
    settings: Settings = None,
    precision: Precision = "exact",
    classifier: Annotated[str, typer.Option(help="batched, or sklearn as a cross-check.")] = "batched",
    seed: Annotated[int, typer.Option(help="What folds and batches are drawn with.")] = 1111,
    cache: Annotated[bool, typer.Option(help="Keep vectors for the next evaluation.")] = True,
    source: Annotated[
        str | None,
        typer.Option(help="Another encoder for the source of parallel pairs: English in retrieval."),
    ] = None,
    tokenizer: Tokenizer = None,
    revision: Revision = None,
    convert_pickle: ConvertPickle = False,
) -> None:
    """Score an encoder on the papers' tasks, or on files of your own."""
    from tercet.evaluation.evaluate import choose_tasks, default_cache
    from tercet.evaluation.evaluate import evaluate as run_tasks

    choose_tasks(tasks)
    results = run_tasks(
        _load(model, settings, tokenizer, revision, convert_pickle),
        tasks=tasks,
        data=data,
        out=out,
        name=model,
        classifier=classifier,
        seed=seed,
        precision=precision,
        cache=default_cache() if cache else None,
        source=_load(source, None, None, None, False) if source else None,
        progress=True,
    )
    print_results(results)


@app.command(
    epilog="Examples:\n\n"
    "    tercet train recipes/mini/st5-enc-mean-nli.yaml --run runs/mini\n\n"
    "    tercet train recipes/st5-enc-mean-nli.yaml --run runs/large --set start=t5-large --set stages.0.batch=256\n\n"
    "    tercet train recipes/gense-qa.yaml --run runs/gense-qa --dry-run\n\n"
    "    tercet train recipes/mini/parallel-zh-from-minilm.yaml --run runs/zh\n\n"
    "    torchrun --nproc-per-node 2 -m tercet train recipes/gense-qa.yaml --out runs/gense-qa"
)
def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML file: where to start, the stages, what to evaluate.")],
    run: Annotated[
        Path,
        typer.Option(
            "--run",
            "--out",  # torchrun takes --run for the start of an option of its own
            help="A folder for checkpoints, the log, the encoder and the results.",
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A setting of the recipe: seed, start, stages.nli.batch ..."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The evaluation data; $TERCET_DATA/eval where not given.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the recipe, print it resolved, and stop.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write the log for TensorBoard, too.")] = False,
) -> None:
    """Train an encoder by a recipe. Killed and started again, it goes on and ends with the same weights."""
    from tercet.training.pipeline import check_tasks, run_recipe
    from tercet.training.recipe import read_recipe

    read = read_recipe(recipe, changes=changes or [])
    if dry_run:
        check_tasks(read)
        typer.echo(read.as_yaml(), nl=False)
        return
    result = run_recipe(read, run, data=data, tensorboard=tensorboard, progress=True)
    if not result.is_main:
        return
    for stage in result.stages:
        best = stage.notes.get("best")
        score = f", best dev {best['score']:.2f} at step {best['step']:,}" if best else ""
        _say(f"{stage.name}: {'done before' if stage.skipped else 'done'}{score}")
    if result.results:
        print_results(result.results)
    _say(f"{result.encoder or run}")


@app.command(
    epilog="Examples:\n\n"
    "    tercet synthesize sentences.txt --out synthetic\n\n"
    "    tercet synthesize hub:allenai/c4#en --split --set language=en --set max_sentences=100000 "
    "--model mattymchen/nli-synthesizer-t5-base --leaks eval --out synthetic\n\n"
    "    tercet synthesize --refilter synthetic --alpha 0.8\n\n"
    "    tercet synthesize sentences.txt --strategy retrieval --out retrieved\n\n"
    "    tercet synthesize --compare synthetic retrieved"
)
def synthesize(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="SENTENCES...",
            help="Files with a sentence a row, or datasets (hub:ID#CONFIG@SPLIT), which are streamed. With --refilter "
            "or --compare: folders that this command wrote.",
        ),
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="A synthesizer: an embedded name, a model folder, or a hub id.")
    ] = DEFAULT_SYNTHESIZER,
    out: Annotated[
        Path | None, typer.Option(help="A folder for candidates/, triplets.jsonl, audit.json and rejects.jsonl.")
    ] = None,
    refilter: Annotated[
        bool, typer.Option("--refilter", help="Filter the candidates of a folder again; nothing is generated.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show what several folders have for the same sentences.")
    ] = False,
    strategy: Annotated[
        str,
        typer.Option(
            help="generate, no-negatives, retrieval (BM25) or backtranslation. The discriminator relabels where GenSE "
            "used an NLI cross-encoder."
        ),
    ] = "generate",
    split: Annotated[bool, typer.Option("--split", help="Split documents into sentences first.")] = False,
    alpha: Annotated[
        float | None, typer.Option(help="The least probability that a pair is what it should be (0.9).")
    ] = None,
    leaks: Annotated[
        list[Path] | None, typer.Option(help="A file or folder with evaluation texts, which are kept out.")
    ] = None,
    there: Annotated[str | None, typer.Option(help="For backtranslation: the model into the other language.")] = None,
    back: Annotated[str | None, typer.Option(help="For backtranslation: the model back.")] = None,
    column: Column = None,
    seed: Annotated[int, typer.Option(min=0, help="What texts are drawn with.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting: num_samples, top_p, language ..."),
    ] = None,
) -> None:
    """Make triplets of sentences: write, judge, filter. Killed and started again, it goes on where it was."""
    from tercet.synthesis import show

    for flag, used in _WITHOUT_A_MODEL.items():
        if context.params[flag]:
            _refuse_unused(context, flag, used)
    filters = {**parse_settings(settings or []), **({} if alpha is None else {"alpha": alpha})}
    filters |= {"leaks": leaks} if leaks else {}
    if compare:
        show.comparison([Path(folder) for folder in inputs])
        return
    if refilter:
        from tercet.synthesis.corpus import refilter as filter_again

        for folder in inputs:
            show.audit(filter_again(folder, **filters), Path(folder))
        return
    if out is None:
        raise SettingError("--out: is missing. Name a folder.")
    from tercet.storage.settings import checked
    from tercet.synthesis.corpus import synthesize as make_triplets
    from tercet.synthesis.settings import SynthesisSettings

    columns = {} if column is None else {"columns": {"text": column}}
    sources = [{"path": path, "stream": path.startswith("hub:"), **columns} for path in inputs]
    named = {"sentences": sources, "model": model, "strategy": strategy, "split": split, "there": there, "back": back}
    show.audit(make_triplets(checked(SynthesisSettings, {**named, **filters}), out, seed=seed, progress=True), out)


@app.command(
    epilog="Examples:\n\n"
    "    tercet adapt examples/town.txt --out adapted\n\n"
    "    tercet adapt reviews.csv --column body --eval scored:my-pairs.tsv --out adapted\n\n"
    "    tercet adapt manuals.txt --split --set stages.synthesize.alpha=0.8 --out adapted\n\n"
    "    tercet adapt sentences.txt --model t5-base --synthesizer mattymchen/nli-synthesizer-t5-base --out adapted"
)
def adapt(
    sentences: Annotated[
        list[str],
        typer.Argument(metavar="SENTENCES...", help="Files with a sentence a row, or datasets (hub:ID#CONFIG@SPLIT)."),
    ],
    out: Annotated[Path, typer.Option(help="A folder for encoder/, report.html, report.md, adapt.json and run/.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="The encoder to start from: an embedded name, a folder, or a hub id.")
    ] = DEFAULT_MODEL,
    synthesizer: Annotated[
        str, typer.Option(help="What writes and judges triplets: an embedded name, a folder, or a hub id.")
    ] = DEFAULT_SYNTHESIZER,
    evals: Annotated[
        list[str] | None,
        typer.Option(
            "--eval",
            metavar="FILE",
            help="Rows of your own for a real before and after; the start is kept where the result is worse. "
            "scored:FILE, paraphrase:FILE, rerank:FILE, labelled:FILE, triplets:FILE, or a file with their columns.",
        ),
    ] = None,
    split: Annotated[bool, typer.Option("--split", help="Split documents into sentences first.")] = False,
    column: Column = None,
    max_sentences: Annotated[int | None, typer.Option(min=1, help="The most sentences from each source.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="What everything is drawn with.")] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="A setting of the recipe: stages.synthesize.alpha ..."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Evaluation data, for STSB-dev; $TERCET_DATA/eval where not given.")
    ] = None,
) -> None:
    """Make an encoder better on your own sentences, without labels. Killed and started again, it goes on."""
    from tercet.adaptation import show
    from tercet.adaptation.adapt import adapt as adapt_encoder

    adapted = adapt_encoder(
        sentences,
        out,
        model=model,
        synthesizer=synthesizer,
        evals=evals or (),
        split=split,
        column=column,
        max_sentences=max_sentences,
        seed=seed,
        changes=changes or (),
        data=data,
        progress=True,
    )
    show.summary(adapted)


@app.command(
    epilog="Examples:\n\n"
    "    tercet report results --out report.html\n\n"
    "    tercet report runs/nli runs/gense other/results.json --out report.md\n\n"
    "    tercet report runs/frozen runs/dual runs/multilingual --out trajectories.png"
)
def report(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_OR_RESULTS...", help="results.json files, or folders that hold one; training runs."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Where to: .html, .md (figures beside it), or .svg or .png (training trajectories alone)."),
    ],
) -> None:
    """Put results beside the papers' published tables, with figures."""
    from tercet.reporting.report import report as write_report

    for path in write_report(inputs, out=out):
        _say(f"{path}")


@app.command(
    epilog="Examples:\n\n"
    "    tercet export --format onnx --out exported\n\n"
    "    tercet export --model my-encoder --format openvino --int8 --out exported-int8\n\n"
    "    tercet embed sentences.txt --model exported --out vectors.npy"
)
def export(
    graph_format: Annotated[str, typer.Option("--format", help="onnx (for ONNX Runtime) or openvino.")],
    out: Annotated[Path, typer.Option(help="The folder: graph, tokenizer, settings, and a script that runs it.")],
    model: Model = DEFAULT_MODEL,
    int8: Annotated[bool, typer.Option("--int8", help="Store the weights of matrix products in 8 bits.")] = False,
    settings: Settings = None,
    tokenizer: Tokenizer = None,
    revision: Revision = None,
    convert_pickle: ConvertPickle = False,
) -> None:
    """Write an encoder as a graph that runs without Tercet, in ONNX Runtime or OpenVINO."""
    from tercet.encoder.folder.export import check_format
    from tercet.encoder.folder.export import export as write_graph

    check_format(graph_format)
    encoder = _load(model, settings, tokenizer, revision, convert_pickle)
    difference = write_graph(encoder, out, format=graph_format, int8=int8)
    _say(
        f"{out}: on sample texts the largest difference is {difference.max_error:.1e}, "
        f"the lowest cosine {difference.min_cosine:.4f}"
    )


_WITHOUT_A_MODEL = {"compare": {"inputs"}, "refilter": {"inputs", "alpha", "leaks", "settings"}}
"""The flags of `synthesize` with which nothing is generated, and what they use."""


def _refuse_unused(context: typer.Context, flag: str, used: set[str]) -> None:
    """Raise SettingError where something is given that a flag does not use."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name not in {flag, *used} and source is not None and source.name == "COMMANDLINE":
            raise SettingError(f"{parameter.opts[0]}: does nothing with --{flag}. Leave it out.")


@contextlib.contextmanager
def _open_texts(source: str, column: str | None, file_format: str | None) -> "Iterator[TextFile]":
    from tercet.data.rows.texts import TextFile, readable_twice

    with readable_twice(source) as path:
        yield TextFile.open(path, column=column, file_format=file_format)


def _load(
    model: str, settings: list[str] | None, tokenizer: str | None, revision: str | None, convert_pickle: bool
) -> "Encoder":
    from tercet.encoder.model.encoder import Encoder

    return Encoder.load(
        model, tokenizer=tokenizer, revision=revision, convert_pickle=convert_pickle, **parse_settings(settings or [])
    )


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Read KEY=VALUE pairs: `null`, `true` and numbers are what they look like, all else is text.

    Raises:
        SettingError: A pair has no `=`.
    """
    words = {"null": None, "true": True, "false": False}
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise SettingError(f"--set {pair}: has no value. Write --set {pair}=VALUE.")
        number = int(value) if value.strip().isdigit() else value
        settings[key.strip()] = words.get(value.strip(), number)
    return settings


def _say(message: str) -> None:
    typer.echo(message, err=True)


def main() -> None:
    """Run the command line: errors of ours and of the disk go to standard error as one line, with exit code 2."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        app()
    except (TercetError, OSError) as error:
        fix = ". Check the disk, its permissions and TMPDIR." if isinstance(error, OSError) else ""
        message = f"{type(error).__name__}: {error}{fix}"
        _say(" ".join(line.strip() for line in message.splitlines()))
        sys.exit(2)
