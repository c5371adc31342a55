"""A running Ray: one that is there already, or one of our own on this machine for as long as the work takes."""

import contextlib
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tercet.distributed.settings import ClusterSettings
from tercet.errors import SettingError
from tercet.storage.extras import require

logger = logging.getLogger("tercet")

_ENVIRONMENT = ("HF_HUB_OFFLINE", "HF_ENDPOINT", "TOKENIZERS_PARALLELISM", "XDG_CACHE_HOME")
"""What workers get of the driver's environment. Never tokens: Ray logs these values and shows them in its dashboard."""


@dataclass(frozen=True)
class Cluster:
    """A Ray that this process is connected to."""

    ray: Any
    """The module."""

    settings: ClusterSettings
    num_workers: int
    cores: tuple[int, ...] | None
    """The cores of this machine where all workers are on it; workers are pinned to them."""

    dashboard: str = ""
    """The address of Ray's dashboard; empty where it has none."""


@contextlib.contextmanager
def connected(settings: ClusterSettings) -> Iterator[Cluster]:
    """Connect to Ray while the block runs; one that this process was connected to before stays so.

    Raises:
        SettingError: Ray is not installed, or no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = require("ray", "ray")
    was_connected = ray.is_initialized()
    is_own = settings.address is None and not was_connected
    cores = tuple(sorted(os.sched_getaffinity(0))) if is_own and hasattr(os, "sched_getaffinity") else None
    context = None if was_connected else _connect(ray, settings, num_cores=len(cores or ()) or os.cpu_count() or 1)
    try:
        found = getattr(context, "dashboard_url", None)
        num_workers = settings.workers or _num_workers(ray.cluster_resources(), settings)
        yield Cluster(ray, settings, num_workers, cores, found or "")
    finally:
        if not was_connected:
            ray.shutdown()


def _connect(ray: Any, settings: ClusterSettings, *, num_cores: int) -> Any:
    variables = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if settings.address is None:
        wanted = (settings.workers or 1) * settings.cpus_per_worker
        options |= {"address": "local", "num_cpus": max(num_cores, math.ceil(wanted)), "include_dashboard": False}
    else:
        options |= {"address": settings.address, "runtime_env": {"env_vars": variables}}
    try:
        return ray.init(**options)
    except Exception as error:  # Ray has many kinds
        where = settings.address or "this machine"
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise SettingError(f"{where}: no Ray answers there ({reason}). Check the address and `ray status`.") from error


def _num_workers(resources: dict[str, float], settings: ClusterSettings) -> int:
    """Return how many workers fit into a cluster."""
    fit = resources.get("CPU", 0) / settings.cpus_per_worker
    if settings.gpus_per_worker:
        fit = min(fit, resources.get("GPU", 0) / settings.gpus_per_worker)
    return max(1, int(fit))
