"""Embedding into a folder of shards by the workers of a cluster: the same shards, the same bytes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from tercet.data.reading.addresses import expand
from tercet.data.rows.kept import Kept
from tercet.data.rows.spans import Survey, read_span, survey
from tercet.distributed.cluster import connected
from tercet.distributed.pool import Failure, Pool
from tercet.distributed.settings import ClusterSettings
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.settings import EmbedOptions, EmbedStats
from tercet.errors import InputError, TercetError
from tercet.storage.choices import Dtype
from tercet.storage.files import make_folder, remove_temporaries
from tercet.storage.locks import hold_target
from tercet.storage.progress import progress_bar
from tercet.vectors.folder import Making, earlier_surveys, kept_of, total
from tercet.vectors.parts import Made, Part, VectorFolder, is_done, parts_of

_GPU_BATCH_TOKENS = 16_384
"""How many tokens are computed at once on a GPU where nobody says it: what fits there, the driver cannot see."""

_NAMED = 5
"""How many shards that failed are named."""


@dataclass(frozen=True, slots=True)
class _ToSurvey:
    """A file that is to be read once from end to end."""

    path: str
    column: str | None
    file_format: str | None
    span_texts: int

    num_rows = 0

    @property
    def label(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class _ToMake:
    """A shard that is to be made, and what the manifest has of it."""

    part: Part
    recorded: Made | None
    kept: Kept
    """Which columns go along; the inputs tell their types, so it is known late."""

    @property
    def num_rows(self) -> int:
        return self.part.span.num_texts

    @property
    def label(self) -> str:
        return self.part.name


@dataclass(frozen=True, slots=True)
class _Done:
    made: Made
    earlier: bool
    """Whether it was there already."""


class _Work:
    """What a worker does: surveys and shards."""

    def __init__(self, making: Making, encoder: Encoder) -> None:
        self._making, self._encoder = making, encoder

    def __call__(self, task: Any) -> Any:
        if isinstance(task, _ToSurvey):
            return survey(task.path, column=task.column, file_format=task.file_format, span_texts=task.span_texts)
        if task.recorded is not None and is_done(self._making.folder, task.recorded):
            return _Done(task.recorded, earlier=True)
        making = replace(self._making, keep=task.kept.names, types=task.kept.types)
        (made,) = making.make([task.part], self._encoder)
        return _Done(made, earlier=False)

    def try_rows(self, task: Any, first: int, last: int) -> None:
        """Embed some texts of a shard."""
        texts, _ = read_span(task.part.source, task.part.span)
        self._encoder.embed(texts[first:last], **self._making.options)


def _begin(making: Making, device: str, encoder: Encoder) -> _Work:
    return _Work(making, encoder.to(device))


def spread_folder(
    out: Path,
    inputs: Sequence[str | Path],
    encoder: Encoder,
    settings: ClusterSettings,
    *,
    column: str | None = None,
    file_format: str | None = None,
    shard_texts: int,
    keep: Sequence[str] = (),
    dtype: Dtype = "float32",
    **options: Unpack[EmbedOptions],
) -> EmbedStats:
    """Embed files into a folder of shards on a cluster; see `embed`."""
    device = "cuda" if settings.gpus_per_worker else "cpu"
    encoder.to("cpu")
    options["precision"] = encoder.resolve_precision(options.get("precision", "exact"))
    if options.get("max_batch_tokens") is None:
        options["max_batch_tokens"] = _GPU_BATCH_TOKENS if settings.gpus_per_worker else encoder.batch_tokens(None)
    show = bool(options.pop("progress", False))
    out = out.resolve()  # workers stand in other folders
    making = Making(out, options, dtype=dtype)
    make_folder(out.parent)
    paths = [path if "://" in path or path.startswith("hub:") else str(Path(path).resolve()) for path in expand(inputs)]
    with hold_target(out), connected(settings) as cluster:
        with Pool(cluster, partial(_begin, making, device), encoder, num_tasks=cluster.num_workers) as pool:
            asked = (column, file_format, shard_texts)
            surveys = _survey_all(pool, paths, out, asked, show=show)
            kept = kept_of(surveys, keep)
            plan = replace(making, keep=kept.names, types=kept.types).plan(encoder, shard_texts=shard_texts)
            folder = VectorFolder(out, plan=plan | {"device": device}, surveys=surveys)
            label = f"embedding ({cluster.dashboard})" if cluster.dashboard else "embedding"
            with progress_bar(label, total=folder.num_texts, unit="texts", enabled=show) as advance:
                tasks = (_ToMake(part, folder.recorded(part), kept) for part in parts_of(surveys))
                for task, done in pool.run(tasks):
                    folder.record(done.made)
                    advance(task.num_rows, note=pool.note, earlier=done.earlier)
            remove_temporaries(out)  # of workers that ended
            if pool.failures:
                raise _failed(pool.failures, folder.num_parts)
            return replace(total(folder.finish()), shards=asdict(pool.tally) | {"num": folder.num_parts})


def _survey_all(
    pool: Pool, paths: Sequence[str], out: Path, asked: tuple[str | None, str | None, int], *, show: bool
) -> list[Survey]:
    """Return surveys of files in their order; workers read those that are new or changed."""
    found = earlier_surveys(out, paths, asked)
    unread = [_ToSurvey(path, *asked) for path in dict.fromkeys(paths) if path not in found]
    with progress_bar("reading", total=len(unread), unit="files", enabled=show and bool(unread)) as advance:
        for task, surveyed in pool.run(unread):
            found[task.path] = surveyed
            advance(1, note=pool.note)
    if pool.failures:
        raise _error_of(pool.failures[0])
    return [found[path] for path in paths]


def _failed(failures: Sequence[Failure], num_parts: int) -> InputError:
    """Return the error that names the shards that could not be made."""
    said = "; ".join(str(_error_of(failure)) for failure in failures[:_NAMED])
    more = f"; and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
    return InputError(
        f"{len(failures):,} of {num_parts:,} shards cannot be made, the others are done: {said}{more}. "
        "Fix the rows or the settings, and start again."
    )


def _error_of(failure: Failure) -> TercetError:
    if isinstance(failure.error, TercetError):
        return failure.error
    if isinstance(failure.task, _ToSurvey):
        return InputError(f"{failure.task.path}: ends the workers that read it ({failure.error}). Look at the file.")
    part: Part = failure.task.part
    if failure.row is not None:
        return InputError(f"{part.source}: row {part.span.first + failure.row + 1} ends every worker ({failure.error})")
    rows = f"rows {part.span.first + 1:,} to {part.span.first + part.span.num_texts:,}"
    return InputError(f"{part.source}: {rows} failed each time ({failure.error})")
