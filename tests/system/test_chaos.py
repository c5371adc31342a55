"""The short form of `scripts/chaos`: kills, failing disks, flips, races and odd inputs, and everything survives."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_everything_survives_two_minutes_of_chaos(tmp_path):
    done = subprocess.run(
        [ROOT / "scripts" / "chaos", "--minutes", "2"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    tried = re.search(r"^all +([\d,]+) +([\d,]+)$", done.stdout, re.MULTILINE)
    assert tried and tried[1] == tried[2] and int(tried[1].replace(",", "")) > 8, done.stdout
