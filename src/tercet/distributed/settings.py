"""What can be chosen about a cluster."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from tercet.errors import SettingError
from tercet.storage.settings import Settings, checked

Engine: TypeAlias = "str | Mapping[str, Any] | ClusterSettings"
"""`local` (this process), `ray`, or the settings of a cluster, such as `{"address": "auto", "workers": 8}`."""

LOCAL, RAY = "local", "ray"


class ClusterSettings(Settings):
    """Where work is done, and by how many."""

    address: str | None = None
    """A running cluster: `auto`, `HOST:PORT` or `ray://HOST:PORT`. None starts Ray on this machine for the time."""

    workers: Annotated[int, Field(strict=True, ge=1)] | None = None
    """How many workers; as many as fit where None."""

    cpus_per_worker: Annotated[float, Field(gt=0)] = 1
    """How many CPUs each worker has, and threads."""

    gpus_per_worker: Annotated[float, Field(ge=0)] = 0
    """How many GPUs each worker has; 0.5 puts two workers on one."""

    tries: Annotated[int, Field(strict=True, ge=1)] = 3
    """How many workers a shard may end before it is looked at row by row."""

    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """How long a shard may take; where None, ten times the slowest one so far, and at least five minutes."""


def cluster_of(engine: "Engine") -> ClusterSettings | None:
    """Return the cluster that is meant; None for this process.

    Raises:
        SettingError: There is no such engine, or a setting does not fit.
    """
    if engine == LOCAL:
        return None
    if engine == RAY:
        return ClusterSettings()
    if isinstance(engine, str):
        raise SettingError(f"engine {engine!r}: there is none of that name. Known: {LOCAL}, {RAY}.")
    return checked(ClusterSettings, engine, ["engine"])
