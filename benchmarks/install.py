"""What a fresh installation downloads, how much disk it takes, and how long it lasts.

    python benchmarks/install.py [--json docs/figures/install.json]

Makes a virtual environment in a temporary folder and installs this clone into it, without pip's cache. Sizes of
downloads are those of the files that pip chose: with a build of PyTorch for CPUs at hand, those of that build.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from urllib.request import Request, urlopen

from machine import machine

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 6
MB = 1e6


def measure(folder: Path) -> dict[str, Any]:
    """Install into a folder."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    started = time.perf_counter()
    report = folder / "report.json"
    subprocess.run([*pip, "--report", report, "--constraint", "constraints.txt", "."], cwd=ROOT, check=True)
    seconds = time.perf_counter() - started
    chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    downloads = {each["metadata"]["name"].lower(): _size(each["download_info"]["url"]) for each in chosen}
    [site] = (folder / "venv" / "lib").glob("python*/site-packages")
    disk = {
        each.metadata["Name"].lower(): sum(_bytes(Path(str(file.locate()))) for file in each.files or [])
        for each in distributions(path=[str(site)])
    }
    disk = {name: size for name, size in disk.items() if name in downloads}
    downloads["tercet"] = sum(_bytes(file) for file in (ROOT / "src" / "tercet" / "models").rglob("*"))
    largest = sorted(disk, key=lambda name: -disk[name])[:SHOWN]
    packages = {name: [downloads[name] / MB, disk[name] / MB] for name in largest}
    others = [name for name in disk if name not in largest]
    packages[f"{len(others)} others"] = [sum(table[name] for name in others) / MB for table in (downloads, disk)]
    packages["together"] = [sum(table.values()) / MB for table in (downloads, disk)]
    return {
        "command": "python benchmarks/install.py",
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(seconds, 1),
        "packages": {name: [round(size, 1) for size in sizes] for name, sizes in packages.items()},
    }


def _bytes(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _size(address: str) -> int:
    """Return how many bytes a download has."""
    parts = urlparse(address)
    if parts.scheme == "file":
        return _bytes(Path(unquote(parts.path)))
    with urlopen(Request(address, method="HEAD"), timeout=60) as answer:
        return int(answer.headers["Content-Length"])


def main() -> None:
    """Measure, and print or write what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
