"""The commands that are disturbed, on tiny random models, and what they leave; each runs in a process of its own."""

import contextlib
import hashlib
import os
import re
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import yaml

from tercet import cli

SENTENCES = [f"A man number {i} is playing a guitar on the stage in front of many people." for i in range(24)]
MORE = [
    f"Package {i} draws maps of the {i} streets of a town and prints {i + 3} lists of its {i} shops." for i in range(40)
]
_TIMES = re.compile(rb"(making rows|training|judging): [\d,]+ s")
_GRACE_S = 5
"""How long the other processes of a command have when one has failed."""

OK, REFUSED, UNFORESEEN = 0, 2, cli.UNFORESEEN


@dataclass(frozen=True)
class Command:
    """A command as a user starts it in a folder, and the files that it is for."""

    args: tuple[str, ...]
    products: tuple[str, ...]
    """The files that must be the same bytes whatever happened on the way: names or patterns."""
    is_slow: bool = False
    num_processes: int = 1

    def digests(self, folder):
        """Return the hashes of its products; nothing where one is missing."""
        files = sorted({file for pattern in self.products for file in folder.glob(pattern) if file.is_file()})
        contents = {file: _TIMES.sub(b"", file.read_bytes().replace(str(folder).encode(), b"")) for file in files}
        return {str(file.relative_to(folder)): hashlib.sha256(contents[file]).hexdigest() for file in files}


COMMANDS = {
    "embed": Command(("embed", "in.txt", "--model", "t5", "--out", "out.npy", "--shard-texts", "4"), ("out.npy*",)),
    "train": Command(
        ("train", "recipe.yaml", "--run", "run"),
        ("run/encoder/**/*", "run/metrics.jsonl", "run/stages/03-c/triplets.jsonl"),
    ),
    "train, 2 processes": Command(
        ("train", "recipe.yaml", "--run", "run"), ("run/encoder/**/*", "run/metrics.jsonl"), num_processes=2
    ),
    "synthesize": Command(
        ("synthesize", "in.txt", "--model", "synth", "--out", "made", "--set", "shard_sentences=8"),
        ("made/triplets.jsonl", "made/audit.json", "made/candidates/*"),
    ),
    "evaluate": Command(
        ("evaluate", "--model", "t5", "--tasks", "scored:pairs.tsv", "--out", "scores"), ("scores/*.json",)
    ),
    "adapt": Command(
        (
            *("adapt", "more.txt", "--out", "adapted", "--plan", "spans", "--model", "bert", "--keep-anyway"),
            *("--data", ".", "--set", "stages.contrast.steps.most=4", "--set", "stages.contrast.steps.least=4"),
            *("--set", "stages.contrast.batch=8", "--set", "stages.contrast.checkpoint_every=2"),
        ),
        ("adapted/encoder/**/*", "adapted/report.md", "adapted/report.html"),
    ),
    "report": Command(("report", "results.json", "--out", "report.html"), ("report.html",)),
    "export": Command(
        ("export", "--model", "t5", "--format", "onnx", "--out", "graph"), ("graph/model.onnx*",), is_slow=True
    ),
}


def make_world(folder, make_models):
    """Fill a folder with what the commands read."""
    make_models(folder)
    (folder / "in.txt").write_text("".join(f"{text}\n" for text in SENTENCES))
    (folder / "more.txt").write_text("".join(f"{text}\n" for text in MORE))
    pairs = [f"{a}\t{b}\t{i % 6}\n" for i, (a, b) in enumerate(zip(SENTENCES, reversed(SENTENCES), strict=True))]
    (folder / "pairs.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(pairs))
    rows = [f"{a}\t{b}\n" for a, b in zip(SENTENCES[:12], SENTENCES[12:], strict=True)]
    (folder / "rows.tsv").write_text("anchor\tpositive\n" + "".join(rows))
    stage = {"rows": "rows.tsv", "batch": 4, "learning_rate": 1e-3, "checkpoint_every": 2}
    stages = [
        {"name": "a", "contrast": {**stage, "steps": 5}},
        {"name": "b", "contrast": {**stage, "start": "@a", "steps": 3}},
        {"name": "c", "synthesize": {"sentences": "in.txt", "model": "synth", "shard_sentences": 8}},
    ]
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"start": "bert", "stages": stages}))
    code, said = start("evaluate", folder, args=(*COMMANDS["evaluate"].args[:-1], ".")).end()
    if code != OK:
        raise SystemExit(said)


class Started:
    """A command in a process of its own, or in several."""

    def __init__(self, pids, said):
        self.pids, self.said, self.codes = pids, said, {}

    def kill(self):
        """Kill all of its processes that are not known to have ended."""
        for pid in self.pids:
            if pid not in self.codes:
                os.kill(pid, signal.SIGKILL)

    def end(self, timeout_s=600):
        """Return the first process's exit code, below 0 where a signal ended it, and what all said."""
        limit_s, is_late = time.monotonic() + timeout_s, False
        while len(self.codes) < len(self.pids):
            for pid in self.pids:
                found, status = (0, 0) if pid in self.codes else os.waitpid(pid, os.WNOHANG)
                if found:
                    self.codes[pid] = os.waitstatus_to_exitcode(status)
            if any(self.codes.values()):  # as torchrun does where one of several processes has failed
                limit_s = min(limit_s, time.monotonic() + _GRACE_S)
            if time.monotonic() > limit_s:
                is_late = not self.codes
                self.kill()
            time.sleep(0.002)
        return UNFORESEEN if is_late else self.codes[self.pids[0]], self.said.read_text(errors="replace")


def start(name, folder, *, faults=None, args=None, max_bytes=None, call=None):
    """Start a command, or a function, in a copy of this process, or in as many as the command has."""
    said = folder.parent / f"{folder.name}.{time.monotonic_ns()}.said"
    num = COMMANDS[name].num_processes if name in COMMANDS else 1
    group = {"WORLD_SIZE": str(num), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())} if num > 1 else {}
    pids = []
    for rank in range(num):
        pid = os.fork()
        if not pid:
            os.environ.update(group and {**group, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            _become(name, folder, said, faults=faults if rank == 0 else None, args=args, max_bytes=max_bytes, call=call)
        pids.append(pid)
    return Started(pids, said)


def _become(name, folder, said, *, faults, args, max_bytes, call):
    """Turn this process into a command, and end it."""
    code = UNFORESEEN
    try:
        os.chdir(folder)
        for number in (1, 2):
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        if max_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        if faults is not None:
            faults.install()
        sys.argv = ["tercet", *(args or (COMMANDS[name].args if name in COMMANDS else ()))]
        code = call() if call is not None else run_main()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_main():
    """Run the command line as it is in `sys.argv`, and return its exit code."""
    try:
        cli.main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    return OK


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def copy_of(world, scratch):
    """Return a copy of a world to work in."""
    folder = Path(scratch) / f"{time.monotonic_ns()}"
    shutil.copytree(world, folder, copy_function=os.link)  # nobody changes a file of a model in its place
    return folder
