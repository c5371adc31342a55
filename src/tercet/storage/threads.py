"""How many threads compute, for a whole process."""

import os

THREADS_VARIABLE = "TERCET_THREADS"
"""The environment variable that says how many threads compute."""


def use_threads(number: int) -> None:
    """Have this process, where it has not imported torch yet, and those that it starts compute on so many threads."""
    os.environ |= dict.fromkeys((THREADS_VARIABLE, "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(number))
