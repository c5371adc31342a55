"""What a report reads: results of `tercet evaluate`, and the log of a training run."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tercet.errors import InputError, RowError
from tercet.reporting.document import one_line
from tercet.storage.documents import parse_json

RESULTS = "results.json"
METRICS = "metrics.jsonl"
SWEEP = "sweep.json"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _finite_only(values: dict[str, float]) -> dict[str, float]:
    return {one_line(name): value for name, value in values.items() if math.isfinite(value)}


def _number_or_none(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _finite(float(value)) if is_number else None


def _text_or_none(value: Any) -> str | None:
    return one_line(value) if isinstance(value, str) else None


Line = Annotated[str, AfterValidator(one_line)]
Number = Annotated[float | None, AfterValidator(_finite)]
LooseNumber = Annotated[float | None, BeforeValidator(_number_or_none)]
LooseText = Annotated[str | None, BeforeValidator(_text_or_none)]


class SpeedCell(BaseModel):
    """One measured combination of length, batch and precision."""

    words: int = Field(gt=0)
    batch: int | None = Field(gt=0)
    """How many sentences at once; None where the encoder chose."""
    precision: Line
    sentences_per_s: float = Field(gt=0, allow_inf_nan=False)
    min: Number = None
    max: Number = None
    peak_rss_gb: Number = None


class TaskResult(BaseModel):
    """One task's entry in a results file; only the score must be there."""

    model_config = ConfigDict(strict=True, frozen=True)

    score: float
    metric: Line = ""
    num: int | None = None
    protocol: Line = ""
    note: Line = ""
    data: dict[str, str] = {}
    by_dims: Annotated[dict[str, float], AfterValidator(_finite_only)] = {}
    subsets: Annotated[dict[str, float], AfterValidator(_finite_only)] = {}
    mean: Number = None
    weighted_mean: Number = None
    pearson: Number = None
    cosine_spearman: Number = None
    f1: Number = None
    num_train: int | None = None
    num_truncated: int | None = None
    measured_on: Line | None = Field(default=None, alias="set")
    alignment: Number = None
    uniformity: Number = None
    anisotropy: Number = None
    alignment_as_printed: Number = None
    uniformity_as_printed: Number = None
    grid: list[SpeedCell] = []
    num_parameters: int | None = None
    peak_rss_gb: Number = None


class Results(BaseModel):
    """A results file."""

    model_config = ConfigDict(strict=True, frozen=True)

    model: Line
    num_parameters: int | None = None
    tasks: dict[str, TaskResult]
    settings: dict[str, Any] = {}
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}


class Sweep(BaseModel):
    """The record of a sweep: the values of its settings in each of its runs."""

    runs: dict[str, dict[Line, Line]]


class Step(BaseModel):
    """One line of a training log; whatever is missing, or is no number, is None."""

    step: LooseNumber = None
    loss: LooseNumber = None
    alignment: LooseNumber = None
    uniformity: LooseNumber = None
    temperature: LooseNumber = None
    dev: LooseNumber = None
    measured_on: LooseText = Field(default=None, alias="set")
    stage: LooseText = None


@dataclass(frozen=True)
class Run:
    """A results file and a training log, or one of them."""

    label: str
    """What the report calls it: the model's name, and the folder's where two models have one name."""
    source: str
    results: Results
    steps: tuple[Step, ...] = ()
    sweep: str | None = None
    """The folder of the sweep that it is a run of."""
    point: tuple[tuple[str, str], ...] = ()
    """The settings that differ in the sweep, with this run's values."""

    @property
    def tasks(self) -> dict[str, TaskResult]:
        """The results by task."""
        return self.results.tasks

    def average(self, names: Sequence[str]) -> tuple[float | None, int]:
        """Return the mean over those of the tasks that have a score, and how many these are."""
        scores = [self.tasks[name].score for name in names if name in self.tasks]
        return (math.fsum(scores) / len(scores) if scores else None), len(scores)


def read_runs(inputs: Sequence[str | Path]) -> list[Run]:
    """Read results files, and folders with a results file or a training log, each once and in the order given.

    Raises:
        InputError: There is nothing to read, or a file is missing or is no results file.
        RowError: A line of a training log is broken.
    """
    if not inputs:
        raise InputError("nothing to report: no results were named. Name results.json files or folders that hold one.")
    swept = {run: where for path in inputs for run, where in _swept(Path(path)).items()}
    named = [path for path in map(Path, inputs) if not (path / SWEEP).is_file()]
    unique = {_key(path): path for path in [*named, *swept]}
    runs = _with_labels([_read_run(path) for path in unique.values()])
    return [
        replace(run, sweep=swept[path][0], point=swept[path][1]) if path in swept else run
        for run, path in zip(runs, unique.values(), strict=True)
    ]


def _swept(folder: Path) -> dict[Path, tuple[str, tuple[tuple[str, str], ...]]]:
    """Return the finished runs of a sweep, each with the sweep's folder and its own values; none where it is none."""
    if not (folder / SWEEP).is_file():
        return {}
    try:
        sweep = Sweep.model_validate_json((folder / SWEEP).read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(f"{folder / SWEEP}: is no record of a sweep. Start the sweep again.") from error
    found = {folder / name: point for name, point in sweep.runs.items() if (folder / name / RESULTS).is_file()}
    if not found:
        raise InputError(f"{folder}: no run of the sweep has results yet. Start it again, with evaluate in its recipe.")
    return {path: (str(folder), tuple(point.items())) for path, point in found.items()}


def _key(path: Path) -> Path:
    return (path / RESULTS if path.is_dir() else path).resolve()


def _read_run(path: Path) -> tuple[Path, Results, tuple[Step, ...]]:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder. Name a results.json file or a folder that holds one.")
    if not path.is_dir():
        return path, _read_results(path), ()
    results, metrics = path / RESULTS, path / METRICS
    if not results.exists() and not metrics.exists():
        raise InputError(f"{path}: holds neither {RESULTS} nor {METRICS}. Run `tercet evaluate --out {path}` first.")
    steps = tuple(_read_steps(metrics)) if metrics.exists() else ()
    empty = Results(model=path.resolve().name, tasks={})
    return path, (_read_results(results) if results.exists() else empty), steps


def _read_results(path: Path) -> Results:
    fix = "Name a file that `tercet evaluate --out` wrote."
    try:
        results = Results.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}. Check the file.") from error
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            raise InputError(f"{path}: is not JSON ({first['ctx']['error']}). {fix}") from error
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(f"{path}: is no results file: {where}: {first['msg'].lower()}. {fix}") from error
    broken = {
        name: "the score is not a finite number" for name, t in results.tasks.items() if not math.isfinite(t.score)
    }
    return results.model_copy(
        update={
            "model": results.model or "unnamed",
            "tasks": {one_line(name): result for name, result in results.tasks.items() if name not in broken},
            "missing": {one_line(name): one_line(why) for name, why in (results.missing | broken).items()},
        }
    )


def _read_steps(path: Path) -> Iterator[Step]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}. Check the file.") from error
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            if number == len(lines):  # a run that is still going, or was killed, may have written half a line
                return
            raise RowError(f"{path}:{number}: is not JSON ({error}). Remove the line.") from error
        if not isinstance(record, dict):
            raise RowError(f"{path}:{number}: is not a JSON object. Remove the line.")
        yield Step.model_validate(record)


def _with_labels(read: list[tuple[Path, Results, tuple[Step, ...]]]) -> list[Run]:
    names = [results.model for _, results, _ in read]
    runs: list[Run] = []
    for path, results, steps in read:
        folder = one_line((path if path.is_dir() else path.parent).resolve().name)
        label = results.model if names.count(results.model) == 1 else f"{results.model} ({folder})"
        taken = sum(run.label == label or run.label.startswith(f"{label} #") for run in runs)
        runs.append(Run(f"{label} #{taken + 1}" if taken else label, str(path), results, steps))
    return runs
