"""Batches side by side, each in a thread of its own that has one of torch's, so that no product waits for another core.

Threads that share one product wait for each other after each operation. Where another program has one of the cores, all
of them wait for it; and even on a free machine, what is not a product is done by one of them.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

from tercet.errors import SettingError
from tercet.storage.threads import THREADS_VARIABLE

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def num_threads(wanted: int | None = None) -> int:
    """Return how many threads compute on a CPU: as many as wanted, or as TERCET_THREADS says, or as torch has.

    Raises:
        SettingError: It is no number of threads.
    """
    named = os.environ.get(THREADS_VARIABLE, "")
    if wanted is None and not named:
        return torch.get_num_threads()
    number = int(named) if wanted is None and named.isdecimal() else wanted
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        setting, value = (THREADS_VARIABLE, named) if wanted is None else ("threads", wanted)
        raise SettingError(f"{setting} {value!r}: is no number of threads. Give a whole number from 1 on.")
    return number


def side_by_side(
    compute: Callable[[_Item], _Result], items: Iterable[_Item], *, threads: int
) -> Iterator[tuple[_Item, _Result]]:
    """Yield items and what is computed from each, in their order; as many at once as there are threads."""
    pool = _pool(threads)
    waiting: deque[tuple[_Item, Future[_Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(compute, item)))
            if len(waiting) > threads:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    finally:
        for _, future in waiting:
            future.cancel()


@cache
def _pool(num: int) -> ThreadPoolExecutor:
    """Return threads that have one of torch's each. They stay: starting them takes longer than a short text."""
    started = threading.Barrier(num + 1)

    def start() -> None:
        torch.get_num_threads()  # takes over the process's number, which would otherwise replace the next one later
        torch.set_num_threads(1)
        started.wait()

    own = torch.get_num_threads()
    pool = ThreadPoolExecutor(num, thread_name_prefix="tercet-compute", initializer=start)
    for _ in range(num):
        pool.submit(int)
    started.wait()
    torch.set_num_threads(own)  # for this thread nothing has changed, but threads started from now on would have theirs
    return pool


if hasattr(os, "register_at_fork"):  # a forked process has none of these threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
