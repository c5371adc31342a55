"""A command that is killed at a chosen moment."""

import contextlib
import os
import signal
import time


def kill_when(ready, started, delay_s=0.0):
    """Kill a process as soon as `ready()` and some time has gone by, unless it has ended by itself."""
    pid, _ = started
    with contextlib.suppress(ProcessLookupError):
        while not ready():
            os.kill(pid, 0)
            time.sleep(0.0005)
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
