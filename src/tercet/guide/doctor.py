"""The verb `doctor`: what is installed, what the machine can do, and how fast it embeds."""

import importlib.metadata
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.machine import versions
from tercet.storage.user_cache import cache_folder

_SENTENCES = [
    "A man is playing a guitar on the stage.",
    "The stock market fell sharply on Monday, and nobody knew why.",
    "Install the package, then start the server with its default settings.",
]
_LITTLE_MEMORY_GB, _LITTLE_DISK_GB = 2.0, 5.0


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    versions: dict[str, str]
    cpu: dict[str, Any]
    """Cores, threads of torch, and the instructions that precisions want: `exact` AVX-512, `fast` bf16, `int8` VNNI."""

    gpus: list[str]
    memory_gb: float | None
    """Memory that is free; None where the system does not say."""

    disk_gb: float
    """Room where things are cached."""

    extras: dict[str, list[str]]
    """What each extra lacks; nothing where it is complete."""

    data: str | None
    """`TERCET_DATA`."""

    texts_per_s: dict[str, float]
    """How many sentences of about 14 tokens the embedded model embeds in a second, by precision."""

    advice: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


def doctor(*, speed: bool = True) -> Diagnosis:
    """Look at the installation and the machine.

    Args:
        speed: Whether the speed is measured, which takes about five seconds.
    """
    import torch

    from tercet.encoder.forward.linear import has_bf16, has_vnni

    cpu = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "avx512": bool(torch.cpu._is_avx512_supported()),
        "bf16": has_bf16(),
        "vnni": has_vnni(),
    }
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory, disk, extras = _free_memory_gb(), _free_disk_gb(cache_folder()), missing_extras()
    advice = []
    if memory is not None and memory < _LITTLE_MEMORY_GB:
        advice.append(f"{memory:.1f} GB of memory are free: larger models than mini may not fit.")
    if disk < _LITTLE_DISK_GB:
        advice.append(f"{disk:.1f} GB are free at {cache_folder()}: set XDG_CACHE_HOME to a larger disk.")
    data = os.environ.get("TERCET_DATA")
    if data is None:
        advice.append("TERCET_DATA is not set: evaluate needs --data, or TERCET_DATA=FOLDER.")
    elif not Path(data).is_dir():
        advice.append(f"TERCET_DATA is {data}, which is not there.")
    return Diagnosis(
        versions=versions(),
        cpu=cpu,
        gpus=gpus,
        memory_gb=None if memory is None else round(memory, 1),
        disk_gb=round(disk, 1),
        extras=extras,
        data=data,
        texts_per_s=_speeds(cpu) if speed else {},
        advice=advice,
    )


def missing_extras(
    required: list[str] | None = None, is_there: Callable[[str], bool] | None = None
) -> dict[str, list[str]]:
    """Return which packages of each extra are not installed.

    Args:
        required: The requirements of Tercet, as its metadata lists them; read from there where None.
        is_there: Says whether a package is installed.
    """
    is_there = is_there or _is_installed
    lacking: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("tercet") or [] if required is None else required:
        found = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", line)
        if found and found[1] != "tercet" and found[2] not in ("all", "dev", "integrations"):
            lacking.setdefault(found[2], []).extend([] if is_there(found[1]) else [found[1]])
    return dict(sorted(lacking.items()))


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _speeds(cpu: Mapping[str, Any]) -> dict[str, float]:
    from tercet.encoder.encoder import Encoder

    encoder = Encoder.load(DEFAULT_MODEL, device="cpu")
    precisions = ["exact", *(["fast"] if cpu["bf16"] else []), *(["int8"] if cpu["vnni"] else [])]
    return {precision: round(_speed(encoder.embed, precision, 4.0 / len(precisions)), 1) for precision in precisions}


def _speed(embed: Callable[..., Any], precision: str, seconds: float) -> float:
    texts = [f"{i}: {sentence}" for i in range(32) for sentence in _SENTENCES]
    embed(texts, precision=precision)  # prepares the weights
    num, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        embed(texts, precision=precision)
        num += len(texts)
    return num / elapsed


def _free_memory_gb() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1e6
    except (OSError, StopIteration):
        return None


def _free_disk_gb(folder: Path) -> float:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free / 1e9
