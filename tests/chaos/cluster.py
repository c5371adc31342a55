"""Kill workers, nodes and the driver of a Ray cluster at random while they embed, and stop nodes without a word.

A round is one folder of vectors: whatever ends is started again until the folder is finished, and then it must have the
bytes that one process wrote without any disturbance: no row lost, none twice. It is behind `scripts/chaos --cluster`.
"""

import argparse
import contextlib
import hashlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

KINDS = ("worker", "worker", "node", "driver", "hang")
_NUM_NODES, _STORE_BYTES = 3, 100_000_000
_SHARD_TEXTS = 5


def digests(folder):
    """Return the hash of every shard."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.parquet"))}


def drive(world, out, address):
    """Embed on the cluster at an address, or here where there is none; every shard takes some time."""
    from works import Brittle

    import tercet

    encoder = Brittle.load(world / "t5", device="cpu")
    engine = {"address": address, "workers": _NUM_NODES, "timeout_s": 10.0} if address else "local"
    tercet.embed(world / "in.txt", out=out, model=encoder, shard_texts=_SHARD_TEXTS, engine=engine)


class Nodes:
    """A cluster whose nodes come and go.

    Args:
        scratch: A folder for what is said.
    """

    def __init__(self, scratch):
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._scratch, self.nodes, self._stopped = scratch, [], []
        for _ in range(_NUM_NODES):
            self.add()
        self.address = self._cluster.address

    def add(self):
        """Add a node."""
        self.nodes.append(self._cluster.add_node(wait=False, num_cpus=1, object_store_memory=_STORE_BYTES))

    def kill(self, number):
        """End a node with all that runs on it, and add another."""
        self._cluster.remove_node(self.nodes.pop(number), allow_graceful=False)
        self.add()

    def stop(self, number):
        """Let a node and all its workers fall silent, and add another."""
        node = self.nodes.pop(number)
        raylet = node.all_processes["raylet"][0].process.pid
        for pid in [raylet, *_children(raylet)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self._stopped.append(node)
        self.add()

    def workers(self):
        """Return the processes of workers that have been started."""
        raylets = [node.all_processes["raylet"][0].process.pid for node in self.nodes if "raylet" in node.all_processes]
        return [pid for raylet in raylets for pid in _children(raylet) if b"ray::Worker" in _command(pid)]

    def end(self):
        """End all of it."""
        for node in self._stopped:
            raylet = node.all_processes["raylet"][0].process.pid
            for pid in [*_children(raylet), raylet]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._cluster.shutdown()


def _children(parent):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def disturb(nodes, driver, kind, rng):
    """Do one harm, and return whether there was something to do it to."""
    if kind == "driver":
        driver.kill()
    elif kind == "worker":
        workers = nodes.workers()
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
    else:
        (nodes.stop if kind == "hang" else nodes.kill)(rng.randrange(len(nodes.nodes)))
    return True


def chaos(num_kills, *, seed=0, kinds=None, num_shards=60, say=print):
    """Do so many harms, drawn or in the order of `kinds`, and return what was done and what was found to be wrong."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))
    from chaos.suite import make_models

    rng, done, failures = random.Random(seed), Counter(), []
    drawn = itertools.cycle(kinds) if kinds else (rng.choice(KINDS) for _ in itertools.count())
    with tempfile.TemporaryDirectory(prefix="tercet-chaos-") as scratch:
        world = Path(scratch)
        make_models(world)
        texts = [
            f"a man number {i} plays a guitar" if i % _SHARD_TEXTS else "slow" for i in range(num_shards * _SHARD_TEXTS)
        ]
        (world / "in.txt").write_text("".join(f"{text}\n" for text in texts))
        drive(world, world / "here", None)
        expected = digests(world / "here")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        nodes = Nodes(world)
        try:
            number = 0
            while done.total() < num_kills:
                out, number = world / f"there-{number}", number + 1
                failures += _round(nodes, world, out, rng, done, num_kills, drawn, say)
                if digests(out) != expected:
                    failures.append(f"round {number}: {out} has other bytes")
                shutil.rmtree(out)
            done["rounds"] = number
        finally:
            nodes.end()
    return done, failures


def _round(nodes, world, out, rng, done, num_kills, drawn, say):
    """Fill one folder, however often what fills it is disturbed."""
    command = [sys.executable, "-m", "chaos.cluster", "--drive", str(world), str(out), nodes.address]
    while True:
        with (world / "driver.log").open("ab") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log)
        was_killed = False
        while driver.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(rng.uniform(1.0, 6.0))
            is_filling = (out / ".tercet" / "manifest.jsonl").exists()
            if driver.poll() is None and is_filling and done.total() < num_kills:
                kind = next(drawn)
                if disturb(nodes, driver, kind, rng):
                    done[kind] += 1
                    say(f"{done.total()}: {kind}, {len([*out.glob('*.parquet')])} shards done", flush=True)
                    was_killed = was_killed or kind == "driver"
        if driver.wait() == 0:
            return []
        if not was_killed:
            return [f"the driver ended with {driver.returncode}: {(world / 'driver.log').read_text()[-1500:]}"]


def main():
    """Do so many harms; exit code 1 where something was lost."""
    parser = argparse.ArgumentParser(prog="scripts/chaos --cluster", description=__doc__)
    parser.add_argument("--kills", type=int, default=30, help="how many harms are done (30)")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn with (0)")
    parser.add_argument("--drive", nargs=3, metavar=("WORLD", "OUT", "ADDRESS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive is not None:
        drive(Path(args.drive[0]), Path(args.drive[1]), args.drive[2])
        return
    done, failures = chaos(args.kills, seed=args.seed)
    print(", ".join(f"{num} {kind}" for kind, num in done.items()))
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
