"""What machine a number was measured on."""

import re
from pathlib import Path

import tercet


def machine() -> str:
    """Return the processor's name, how many cores there are, and which instructions matter here."""
    cpu, file = tercet.doctor(speed=False).cpu, Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", file.read_text(), re.MULTILINE) if file.exists() else []
    has = [name for key, name in (("avx512", "AVX-512"), ("bf16", "bf16"), ("vnni", "VNNI")) if cpu[key]]
    name = names[0] if names else cpu["processor"]
    return f"{cpu['cores']} cores of {name} with {', '.join(has) or 'none of AVX-512, bf16 and VNNI'}"
