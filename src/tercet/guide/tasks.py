"""The verb `tasks`: what an encoder can be measured by, and whether the data is there."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tercet.data.sets.catalogue import FILES, NOT_ON_HUB, is_there
from tercet.data.sets.folder import data_root
from tercet.data.sets.groups import DEV_SETS, GROUPS

_ABOUT = {
    "sts": "semantic textual similarity: Spearman of the cosine, all pairs of a year",
    "transfer": "accuracy of a classifier on the vectors, by SentEval's protocol",
    "sentglue": "GLUE on pairs of vectors",
    "domain": "reranking and paraphrases in special domains",
    "zh": "semantic textual similarity in Chinese",
}
_OTHERS = {
    "geometry": "alignment and uniformity on STSB",
    "retrieval": "translations found among all, both ways",
    "speed": "texts and tokens per second on this machine",
}


@dataclass(frozen=True)
class TaskInfo:
    """A task that can be named."""

    name: str
    """What `--tasks` takes."""

    group: str
    """The group that it is in; a dev set belongs to one and is not in its average."""

    about: str
    ready: bool | None
    """Whether its data is there; None where no data folder is known."""

    fix: str
    """How to get the data where it is not there."""

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def tasks(*, data: str | Path | None = None) -> list[TaskInfo]:
    """Return all tasks.

    Args:
        data: The evaluation data; `$TERCET_DATA/eval` where None.
    """
    known = data is not None or "TERCET_DATA" in os.environ
    root = data_root(data) if known else Path()
    groups = {task: group for group, names in GROUPS.items() for task in (*names, *DEV_SETS.get(group, ()))}
    names = [*groups, *(name for name in _OTHERS if name not in groups)]
    return [_info(name, groups.get(name, ""), is_there(root, name) if known else None) for name in names]


def _info(name: str, group: str, ready: bool | None) -> TaskInfo:
    about = _OTHERS.get(name) or _ABOUT[group]
    if name == "speed":
        return TaskInfo(name, group, about, True, "")
    if name in NOT_ON_HUB:
        return TaskInfo(name, group, about, ready, "" if ready else NOT_ON_HUB[name])
    fix = f"tercet data fetch {name}" if name in FILES else ""
    return TaskInfo(name, group, about, ready, "" if ready else fix)
