"""The table of all tasks, and which of them a list of names stands for."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from tercet.data.sets.folder import DataFolder, data_root
from tercet.data.sets.groups import GROUPS
from tercet.errors import SettingError
from tercet.evaluation.tasks import domain, geometry, glue, speed, sts, transfer, translation
from tercet.evaluation.tasks.own import kind_of, own_task
from tercet.evaluation.tasks.task import Task
from tercet.storage.texts import several

_FAMILIES = (sts, transfer, glue, domain, translation, geometry, speed)
TASKS = {task.name: task for family in _FAMILIES for task in family.TASKS}
"""Every task by its name."""


def choose_tasks(names: str | Sequence[str]) -> list[Task]:
    """Return the tasks that names of tasks, groups and files stand for, each once and in the order given.

    A file is `KIND:FILE`, or a file alone, whose kind its columns tell.

    Raises:
        SettingError: A name is unknown; the message lists near matches.
        InputError: A file without a kind is not there, or has the columns of no kind.
    """
    chosen: dict[str, Task] = {}
    for name in [part.strip() for part in names.split(",")] if isinstance(names, str) else several(names):
        kind, colon, path = name.partition(":")
        if name in GROUPS:
            chosen |= {task: TASKS[task] for task in GROUPS[name]}
        elif name in TASKS:
            chosen[name] = TASKS[name]
        elif (not colon and Path(name).suffix) or Path(name).is_file():
            task = own_task(kind_of(name), name)
            chosen[task.name] = task
        elif colon:
            task = own_task(kind, path)
            chosen[task.name] = task
        else:
            known = [*GROUPS, *TASKS]
            near = difflib.get_close_matches(name, known, n=3) or known
            raise SettingError(f"task {name!r}: there is none of that name. Take one of: {', '.join(near)}.")
    return list(chosen.values())


def data_for(tasks: Sequence[Task], data: str | Path | None) -> DataFolder:
    """Return the folder that tasks read their data from; `$TERCET_DATA/eval` where None.

    Raises:
        InputError: There is no such folder.
        SettingError: No folder was named, and a task needs one.
    """
    return DataFolder(data_root(data, needed=any(task.needs_data for task in tasks)))
