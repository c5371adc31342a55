"""What a result is computed with: versions, the machine, and how many threads."""

import os
import platform
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

THREADS_VARIABLE = "TERCET_THREADS"
"""The environment variable that says how many threads compute."""


def use_threads(number: int) -> None:
    """Have this process, where it has not imported torch yet, and those that it starts compute on so many threads."""
    os.environ |= dict.fromkeys((THREADS_VARIABLE, "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(number))


def versions() -> dict[str, str]:
    """Return the versions of what computes a result."""
    packages = ["tercet", "torch", "transformers", "tokenizers", "numpy"]
    packages += ["scikit-learn"] if find_spec("sklearn") else []
    return {package: version(package) for package in packages} | {"python": platform.python_version()}


def machine() -> dict[str, Any]:
    """Return where this runs: what can make a difference in the last bits of a result."""
    import torch

    on_gpu = torch.cuda.is_available()
    return {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "num_cpus": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if on_gpu else [],
    }
