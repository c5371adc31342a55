"""Where else the log of a training goes, by name: TensorBoard, Weights & Biases, MLflow."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tercet.errors import SettingError
from tercet.storage.choices import Logger, check_choice
from tercet.storage.extras import require
from tercet.storage.hashing import sha256_of_json

OnLog = Callable[[dict[str, Any]], None]
"""Gets a line of the log."""

_PROJECT = "tercet"


def open_logger(name: str, run: Path, stage: str) -> OnLog:
    """Return the function that gives the lines of a stage's log to a logger.

    Args:
        name: Which logger.
        run: The folder of the run.
        stage: The name of the stage.

    Raises:
        SettingError: There is none of that name, or its package is not installed.
    """
    check_choice("loggers", name, Logger)
    return _OPEN[name](run, stage)


def _tensorboard(run: Path, stage: str) -> OnLog:
    require("tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    writer: SummaryWriter | None = None

    def add(line: dict[str, Any]) -> None:
        nonlocal writer
        # what was there from this step on goes
        writer = writer or SummaryWriter(str(run / "tensorboard" / stage), purge_step=line["step"])
        for name, value in _numbers(line):
            writer.add_scalar(name, value, line["step"])
        writer.flush()

    return add


def _wandb(run: Path, stage: str) -> OnLog:
    wandb = _installed("wandb")
    run_id = sha256_of_json([str(run.resolve()), stage])[:16]  # a run that goes on is the same one there
    about = {"project": _PROJECT, "group": run.name, "name": f"{run.name}/{stage}", "id": run_id, "dir": str(run)}
    started: Any = None

    def add(line: dict[str, Any]) -> None:
        nonlocal started
        started = started or wandb.init(**about, resume="allow", reinit="create_new")
        started.log(dict(_numbers(line)), step=int(line["step"]))

    return add


def _mlflow(run: Path, stage: str) -> OnLog:
    client = _installed("mlflow").MlflowClient()
    name = f"{run.name}/{stage}"
    started: str | None = None

    def add(line: dict[str, Any]) -> None:
        nonlocal started
        if started is None:
            found = client.get_experiment_by_name(_PROJECT)
            experiment = client.create_experiment(_PROJECT) if found is None else found.experiment_id
            started = client.create_run(experiment, run_name=name, tags={"folder": str(run.resolve())}).info.run_id
        for metric, value in _numbers(line):
            client.log_metric(started, metric, value, step=int(line["step"]))

    return add


_OPEN: dict[str, Callable[[Path, str], OnLog]] = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


def _numbers(line: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a line, those of a set under its name."""
    prefix = f"{line['set']}/" if "set" in line else ""
    return ((prefix + name, value) for name, value in line.items() if isinstance(value, float))


def _installed(package: str) -> Any:
    try:
        return __import__(package)
    except ImportError as error:
        raise SettingError(f"{package}: is not installed. Run: pip install {package}") from error
