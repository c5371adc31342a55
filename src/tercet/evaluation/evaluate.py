"""The verb `evaluate`: score an encoder on the tasks of the three papers, or on your own files."""

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tercet.data.sets.catalogue import FILES, NOT_ON_HUB
from tercet.data.sets.folder import DataFolder, MissingDataError
from tercet.data.sets.groups import GROUPS
from tercet.distributed.settings import LOCAL, ClusterSettings, Engine, cluster_of
from tercet.encoder.choice import Model, ModelSettings, load_encoder
from tercet.encoder.encoder import Encoder
from tercet.errors import InputError, NonFiniteError, OutputError, RowError, SettingError
from tercet.evaluation.tasks.table import choose_tasks, data_for
from tercet.evaluation.tasks.task import Options, Result, Task
from tercet.storage.choices import DEFAULT_MODEL, Classifier, check_choice
from tercet.storage.files import check_writable, make_folder, read_json, remove_temporaries, write_json
from tercet.storage.machine import versions
from tercet.vectors.spread_encoder import spread_encoder
from tercet.vectors.store import TextEncoder, VectorStore

RESULTS = "results.json"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The scores of an encoder, and what they were computed with: the contents of `results.json`."""

    model: str
    num_parameters: int | None
    settings: dict[str, Any]
    versions: dict[str, str]
    tasks: dict[str, Result] = field(default_factory=dict)
    """The result of each task: `metric`, `score` (x 100), `num`, `protocol` and more."""
    missing: dict[str, str] = field(default_factory=dict)
    """Tasks whose data is not there, and what is missing."""
    averages: dict[str, Any] = field(default_factory=dict)
    """The mean of each group that was asked for, and over how many of its tasks."""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Evaluation":
        """Return what `to_dict` was made from."""
        return cls(**{each.name: content[each.name] for each in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `results.json`."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def advice(self) -> str:
        """What to run where no task has a score; empty where one has."""
        if self.tasks:
            return ""
        wanted = [name for name in self.missing if name in FILES]
        group = next((group for group, names in GROUPS.items() if wanted and {*wanted} <= {*names}), None)
        fetch = f"Run: tercet data fetch {group or ' '.join(wanted)}" if wanted else ""
        others = [f"{name} is not on the hub: {NOT_ON_HUB[name]}." for name in self.missing if name in NOT_ON_HUB]
        return " ".join(["Nothing was scored: the data is not there.", *others, fetch]).strip()

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __repr__(self) -> str:
        lines = [f"{name}: {result['score']:.2f} ({result['metric']})" for name, result in self.tasks.items()]
        lines += [f"{name}: missing" for name in self.missing]
        for group, average in self.averages.items():
            over = "" if average["complete"] else f" (over {average['num_tasks']} of {average['of']} tasks)"
            lines.append(f"average {group}: {average['score']:.2f}{over}")
        return "\n  ".join([f"Evaluation of {self.model}", *lines])


def evaluate(
    model: "Model | TextEncoder" = DEFAULT_MODEL,
    *,
    tasks: str | Sequence[str] = "sts",
    data: str | Path | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    classifier: Classifier = "batched",
    seed: int = 1111,
    precision: str = "exact",
    cache: bool | str | Path = True,
    source: "Model | TextEncoder | None" = None,
    whiten: bool = False,
    lengths: Sequence[int] | None = None,
    batches: Sequence[int] | None = None,
    dims: Sequence[int] = (),
    force: bool = False,
    engine: Engine = LOCAL,
    progress: bool = False,
) -> Evaluation:
    """Score an encoder.

    Args:
        model: An encoder by its name, an Encoder, or any object with `encode(list of texts)`.
        tasks: Names of tasks and groups, and files: `my-pairs.tsv`, or with its kind, `scored:FILE`, `rerank:FILE` ...
        data: The folder with the evaluation data; `$TERCET_DATA/eval` where None.
        out: A folder for `results.json`; nothing is written where None.
        name: What the results call the model.
        classifier: `batched` or `sklearn`, for the transfer tasks.
        seed: What folds and batches are drawn with.
        precision: How an Encoder computes; see `embed`.
        cache: Whether vectors of an Encoder are kept for the next evaluation, or the folder that keeps them.
        source: Another encoder for the source side of parallel pairs, which is the English one in `retrieval`.
        whiten: Whether vectors are centred and whitened, by those of each task's own texts, as in BERT-whitening.
        lengths: How many words the sentences of `speed` have; 8, 32 and 128 where None.
        batches: How many of them are embedded at once; 1, 8 and 32 where None, and always as many as the encoder likes.
        dims: Score the first numbers of the vectors by themselves, too: `[256, 64]`. The result of each task has their
            scores as `by_dims`.
        force: Whether a `results.json` of another model, of other settings or with other tasks is replaced.
        engine: Who embeds: this process (`local`), or the workers of a cluster (`ray`, or its settings): tasks of more
            texts than 8,192, with the same vectors.
        progress: Whether bars are shown.

    Returns:
        All scores; `to_dict()` is what `results.json` holds.

    Raises:
        SettingError: A task is unknown.
        InputError: Data is broken; missing data is no error but is reported as missing.
        OutputError: Results cannot be written, or others are there.
    """
    chosen = choose_tasks(tasks)
    check_choice("classifier", classifier, Classifier)
    cluster = cluster_of(engine)
    if cluster is not None and any(task.name == "speed" for task in chosen):
        raise SettingError("engine: the task speed measures this machine. Leave it out, or take engine local.")
    folder = data_for(chosen, data)
    file = None if out is None else Path(out) / RESULTS
    if file is not None:
        make_folder(file.parent)
        check_writable(file)
        remove_temporaries(file.parent, of=(RESULTS,))  # of an evaluation that was killed
    encoder, other = _load(model), None if source is None else _load(source)
    if isinstance(encoder, Encoder):
        precision = encoder.resolve_precision(precision)
    options = Options(
        classifier=classifier,
        seed=seed,
        lengths=_sizes("lengths", lengths) or Options.lengths,
        batches=_sizes("batches", batches) or Options.batches,
    )
    settings = _settings_of(encoder) | {"precision": precision, "classifier": classifier, "seed": seed}
    settings |= {"whiten": True} if whiten else {}
    if any(not 1 <= each <= getattr(encoder, "dim", each) for each in dims):
        raise SettingError(f"dims {[*dims]}: vectors have {getattr(encoder, 'dim', 'fewer')} numbers. Give fewer.")
    settings |= {} if other is None else {"source": _settings_of(other)}
    called = name or getattr(encoder, "name", None) or type(encoder).__name__
    if file is not None and not force:
        _check_replaced(file, called, settings, [task.name for task in chosen])
    stored = partial(VectorStore, precision=precision, cache=cache, progress=progress)
    if other is not None:  # it is embedded here: two pools of workers would wait for each other's CPUs
        options = replace(options, source=stored(other))
    with _spread(encoder, cluster) as embedder:
        store = stored(embedder)
        found = Evaluation(called, store.num_parameters, settings, versions())
        for task in chosen:
            try:
                found.tasks[task.name] = _score(task, folder, store, options, whiten=whiten, dims=dims)
            except MissingDataError as error:
                found.missing[task.name] = str(error)
            found.averages.update(averages(found.tasks, [task.name for task in chosen]))
            if file is not None:  # after every task, so that an error in a later one loses no score
                write_json(file, found.to_dict())
    return found


def _spread(encoder: Any, cluster: ClusterSettings | None) -> AbstractContextManager[Any]:
    """Return an encoder whose texts a cluster embeds; itself where there is none."""
    if cluster is None:
        return nullcontext(encoder)
    if not isinstance(encoder, Encoder):
        raise SettingError(f"engine: embeds with an Encoder, and the model is of type {type(encoder).__name__}.")
    return spread_encoder(encoder, cluster)


def _score(
    task: Task, folder: DataFolder, store: VectorStore, options: Options, *, whiten: bool, dims: Sequence[int]
) -> Result:
    """Return the result of a task, with the files that it read and how many texts were cut."""
    for each in (store, options.source):
        if isinstance(each, VectorStore):
            each.label = f"embedding {task.name}"
    folder.read.clear()
    try:
        result = _run(task, folder, store, options, whiten=whiten) | {"data": dict(folder.read)}
        if dims and task.name != "speed":
            result["by_dims"] = {str(each): _cut(task, folder, store, options, each, whiten=whiten) for each in dims}
    except (RowError, MissingDataError):  # the one says file:line, the other is no error
        raise
    except (InputError, NonFiniteError) as error:
        kind = NonFiniteError if isinstance(error, NonFiniteError) else InputError  # TextError takes two values
        raise kind(f"{task.name}: {error}") from error
    num_truncated = store.take_num_truncated()
    return result if num_truncated is None else result | {"num_truncated": num_truncated}


def _check_replaced(file: Path, model: str, settings: dict[str, Any], tasks: Sequence[str]) -> None:
    """Raise OutputError if a file holds results of another model or of other settings, or of more tasks."""
    if not file.exists():
        return
    fix = "Name another folder, or take --force."
    earlier = read_json(file, kind=dict, raised=OutputError, fix=fix)
    scores = {name: result["score"] for name, result in earlier.get("tasks", {}).items()}
    is_same = earlier.get("settings") == settings and ("fingerprint" in settings or earlier.get("model") == model)
    lost = {name: scores[name] for name in scores.keys() - tasks} if is_same else scores
    if lost:
        shown = ", ".join(f"{name} {score:.2f}" for name, score in sorted(lost.items()))
        raise OutputError(f"{file}: holds results of {earlier.get('model')} that would be lost ({shown}). {fix}")


def averages(scores: dict[str, Result], asked: Sequence[str]) -> dict[str, Any]:
    """Return the mean of each group that was asked for, over the tasks that have a score, and how many those are."""
    found = {}
    for group, names in GROUPS.items():
        scored = [name for name in names if name in scores]
        if scored and set(names) <= set(asked) and len(names) > 1:
            found[group] = {
                "score": float(np.mean([scores[name]["score"] for name in scored])),
                "tasks": scored,
                "num_tasks": len(scored),
                "of": len(names),
                "complete": len(scored) == len(names),
                "notes": {name: scores[name]["note"] for name in scored if "note" in scores[name]},
            }
    return found


def _cut(task: Task, folder: DataFolder, store: VectorStore, options: Options, dims: int, *, whiten: bool) -> float:
    """Return the score of the first numbers of vectors."""
    with contextlib.ExitStack() as stack:
        for each in (store, options.source):
            if isinstance(each, VectorStore):
                stack.enter_context(each.cut_to(dims))
        return float(_run(task, folder, store, options, whiten=whiten)["score"])


def _run(task: Task, folder: DataFolder, store: VectorStore, options: Options, *, whiten: bool) -> Result:
    result = task.run(folder, store, options)
    if not whiten:
        return result
    with store.whitened():  # by the texts of the task, which are known now
        return task.run(folder, store, options)


def _sizes(name: str, numbers: Sequence[int] | None) -> tuple[int, ...]:
    if numbers and min(numbers) < 1:
        raise SettingError(f"{name} {[*numbers]}: has a number below one. Give positive numbers.")
    return tuple(numbers or ())


def _load(model: "Model | TextEncoder") -> TextEncoder:
    if isinstance(model, str | Path | Mapping | ModelSettings):
        return load_encoder(model)
    if not hasattr(model, "encode"):
        raise SettingError(f"model: is of type {type(model).__name__}. Give a name, or an object with encode(texts).")
    return model


def _settings_of(encoder: TextEncoder) -> dict[str, Any]:
    if not isinstance(encoder, Encoder):
        return {}
    return {**encoder.settings.model_dump(), "fingerprint": encoder.fingerprint(), "device": encoder.device.type}
