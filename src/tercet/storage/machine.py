"""What a result was computed with: versions and the machine."""

import os
import platform
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any


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
