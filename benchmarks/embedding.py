"""`Encoder.embed` in a process of its own.

python benchmarks/embedding.py MODEL PRECISION TEXTS_FILE
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from tercet import Encoder
from workers import serve


def main(model: str, precision: str, texts_file: str) -> None:
    """Embed the texts as often as asked."""
    texts, encoder = json.loads(Path(texts_file).read_text(encoding="utf-8")), Encoder.load(model, device="cpu")

    def run() -> dict[str, Any]:
        start, cpu_start = time.perf_counter(), time.process_time()
        encoder.embed(texts, precision=precision)
        return {"seconds": time.perf_counter() - start, "cpu_s": time.process_time() - cpu_start}

    serve({"run": run})


if __name__ == "__main__":
    main(*sys.argv[1:])
