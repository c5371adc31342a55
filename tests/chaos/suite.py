"""Disturb every command and every reader, and count what survives: the suite behind `scripts/chaos`.

Kills and failing disks come at every write by a shim, kills also at random; flips go into every kept file; commands
race; readers get inputs that nobody would write. A command survives where it ends with 0 or with one line and 2, and
where the next start, undisturbed, leaves the bytes of a run that nobody disturbed.
"""

import argparse
import itertools
import json
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from importlib import import_module
from pathlib import Path

import tercet
from chaos import fuzz
from chaos.commands import COMMANDS, OK, REFUSED, copy_of, make_world, run_main, start
from chaos.faults import KINDS, Faults
from chaos.readers import readers

_MODULES = [
    "accelerate.state",
    "pyarrow.parquet",
    "rich.progress",
    "sklearn.linear_model",
    "transformers.generation.utils",
    "transformers.models.bert.modeling_bert",
    "transformers.models.t5.modeling_t5",
    "tercet.evaluation.evaluate",
    "tercet.reporting.report",
    "tercet.synthesis.synthesizer",
    "tercet.training.pipeline",
    "tercet.vectors.embed",
]
"""What commands import late: here once, and not in every copy of this process."""

_KEPT = {
    "embed": "out.npy.parts/*.npy*",
    "train": "run/stages/*/checkpoints/*/*",
    "train, 2 processes": "run/stages/*/checkpoints/*/*",
    "synthesize": "made/candidates/*.parquet*",
    "adapt": "adapted/run/stages/*/checkpoints/*/*",
}
"""What a killed command has kept for its next start."""

_EXAMPLES = 60
"""How many inputs a reader gets at a time."""


class Chaos:
    """What was tried, what survived, and what did not.

    Args:
        world: A folder with what commands read.
        scratch: A folder for copies.
        seed: What is drawn with.
        slow: Whether slow commands take part.
    """

    def __init__(self, world, scratch, *, seed, slow):
        self.world, self.scratch, self.random = world, scratch, random.Random(seed)
        self.tried, self.survived, self.failures = Counter(), Counter(), []
        self.writes = {}
        self.commands = {name: command for name, command in COMMANDS.items() if slow or not command.is_slow}
        self.expected, self.num_writes = {}, {}
        self.done = scratch / "done"
        self.done.mkdir()

    def prepare(self):
        """Run every command once, undisturbed, count its writes, and keep what it made."""
        for name, command in self.commands.items():
            folder = copy_of(self.world, self.scratch)
            counted = self.scratch / f"{name}.writes"
            faults = Faults(None, 0, folder)
            call = partial(_counting, faults, counted)
            code, said = start(name, folder, faults=faults, call=call).end()
            if code != OK:
                raise SystemExit(f"{name} fails without any disturbance: {said}")
            self.expected[name] = command.digests(folder)
            self.num_writes[name] = int(counted.read_text())
            folder.rename(self.done / name)
        vectors = self.done / "embed" / "vectors"  # a folder of their own, for flips
        vectors.mkdir()
        for file in (self.done / "embed").glob("out.npy*"):
            file.rename(vectors / file.name)

    def _count(self, row, failure):
        self.tried[row] += 1
        if failure is None:
            self.survived[row] += 1
        else:
            self._fail(f"{row}: {failure}")

    def _fail(self, failure):
        self.failures.append(failure)
        print(failure, flush=True)  # a long run may be ended from outside

    def _next_write(self, name, kind):
        """Return the number of a write: all of a command's writes in turn, in an order that is drawn."""
        if not self.writes.get((name, kind)):
            numbers = [*range(1, self.num_writes[name] + 1)]
            self.random.shuffle(numbers)
            self.writes[name, kind] = numbers
        return self.writes[name, kind].pop()

    def _after(self, name, folder):
        """Start a command again, undisturbed, and return what is wrong then."""
        code, said = start(name, folder).end()
        if code != OK:
            return f"the next start ended with {code}: {said[-600:]}"
        if self.commands[name].digests(folder) != self.expected[name]:
            return "the next start left other bytes"
        left = [str(each) for each in folder.rglob(".*.tercet") if "cache" not in each.parts]
        return f"it left {left}" if left else None

    def fault(self, name, kind, number):
        """Let a write fail, or kill the command in it; then start it again."""
        folder = copy_of(self.world, self.scratch)
        code, said = start(name, folder, faults=Faults(kind, number, folder)).end()
        allowed = {"kill": (OK, -signal.SIGKILL)}.get(kind, (OK, REFUSED))
        failure = None if code in allowed else f"write {number} of {name}: ended with {code}: {said[-600:]}"
        if failure is None and (problem := self._after(name, folder)):
            failure = f"write {number} of {name}: {problem}"
        self._count(f"{name}: {kind} in a write", failure)
        shutil.rmtree(folder)

    def kill(self, name, delay_s):
        """Kill a command after some time; then start it again."""
        folder = copy_of(self.world, self.scratch)
        started = start(name, folder)
        time.sleep(delay_s)
        started.kill()
        started.end()
        problem = self._after(name, folder)
        self._count(f"{name}: kill at random", problem and f"after {delay_s:.3f} s: {problem}")
        shutil.rmtree(folder)

    def race(self, name):
        """Start a command twice at once: each ends well, or says that the other is at work."""
        folder = copy_of(self.world, self.scratch)
        ends = [started.end() for started in [start(name, folder), start(name, folder)]]
        failure = None
        if all(code == REFUSED for code, _ in ends):
            failure = "both were refused"
        for code, said in ends:
            if code != OK and not (code == REFUSED and "another run is going on here" in said):
                failure = f"one ended with {code}: {said[-600:]}"
        self._count(f"{name}: two at once", failure or self._after(name, folder))
        shutil.rmtree(folder)

    def flip(self, target):
        """Flip one bit of a kept file: `verify` has to name it."""
        files = [each for each in target.rglob("*") if each.is_file() and each.stat().st_size and each.name != ".lock"]
        file = self.random.choice(sorted(files))
        before = file.read_bytes()
        changed = bytearray(before)
        changed[self.random.randrange(len(changed))] ^= 1 << self.random.randrange(8)
        file.write_bytes(changed)
        try:
            found = tercet.verify(target)
            failure = f"{file} was not found" if found.is_whole else None
        except Exception as error:
            failure = f"{file}: {error!r}"
        file.write_bytes(before)
        self._count(f"flip in {target.name}, found by verify", failure)

    def flip_and_go_on(self, name):
        """Kill a command in a late write, flip a bit of what it has kept, and start it again."""
        folder = copy_of(self.world, self.scratch)
        number = self.random.randrange(self.num_writes[name] // 2, self.num_writes[name])
        start(name, folder, faults=Faults("kill", number, folder)).end()
        files = sorted(each for each in folder.glob(_KEPT[name]) if each.is_file() and each.stat().st_size)
        if files:
            file = self.random.choice(files)
            content = bytearray(file.read_bytes())
            content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
            file.write_bytes(content)
            problem = self._after(name, folder)
            self._count(f"{name}: kill, flip, go on", problem and f"{file.relative_to(folder)}: {problem}")
        shutil.rmtree(folder)

    def fuzz(self, reader, *, seed):
        """Give a reader some inputs, in a process of its own with little memory."""
        name, content, read = reader
        told = self.scratch / "fuzz.json"
        told.unlink(missing_ok=True)

        def call():
            told.write_text(json.dumps(fuzz.fuzz(name, content, read, num=_EXAMPLES, seed=seed)))
            return OK

        code, said = start("fuzz", self.scratch, call=call).end(timeout_s=600)
        if code != OK:
            self._count(f"read {name}", f"seed {seed}: ended with {code}: {said[-600:]}")
            return
        num, wrong = json.loads(told.read_text())
        row = "read " + name.partition(":")[0]
        self.tried[row] += num
        self.survived[row] += num - len(wrong)
        for problem in wrong:
            self._fail(f"read {name}: {problem}")

    def rounds(self):
        """Yield disturbances without end: every sort in each round, in an order that is drawn."""
        found = readers(self.world, self.done, self.scratch / "read")
        for number in itertools.count():
            each = [*self._round(number, found[number % 4 :: 4])]
            self.random.shuffle(each)
            yield from each

    def _round(self, number, some_readers):
        kept = [self.done / "train" / "run", self.done / "synthesize" / "made", self.done / "adapt" / "adapted"]
        for target in [*kept, self.done / "embed" / "vectors", self.world / "t5"]:
            for _ in range(3):
                yield partial(self.flip, target)
        for name, kind in itertools.product(self.commands, KINDS):
            yield partial(self.fault, name, kind, self._next_write(name, kind))
        for reader in some_readers:
            yield partial(self.fuzz, reader, seed=number)
        for name in _KEPT:
            yield partial(self.flip_and_go_on, name)
        for name in self.commands:
            yield partial(self.kill, name, self.random.random() * 1.5)
        yield partial(self.race, [*self.commands][number % len(self.commands)])

    def table(self):
        """Return what was tried and what survived."""
        rows = [f"{row:<42} {self.tried[row]:>8,} {self.survived[row]:>9,}" for row in sorted(self.tried)]
        total = f"{'all':<42} {self.tried.total():>8,} {self.survived.total():>9,}"
        return "\n".join([f"{'':<42} {'tried':>8} {'survived':>9}", *rows, total])


def _counting(faults, counted):
    code = run_main()
    if faults.num_writes:  # of several processes the first one counts
        counted.write_text(str(faults.num_writes))
    return code


def make_models(folder):
    """Save the tiny random models that the commands run with."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import conftest
    from tercet.encoder.generator import load_generator, save_generator

    def value(fixture, *args):
        return fixture.__wrapped__(*args)

    t5, bert, labels = value(conftest.t5_tokenizer), value(conftest.bert_tokenizer), value(conftest.label_tokenizer)
    tercet.Encoder.load("random:t5-tiny", tokenizer=t5, device="cpu").save(folder / "t5")
    tercet.Encoder.load("random:bert-tiny", tokenizer=bert, device="cpu", readout="mean").save(folder / "bert")
    labels.save_pretrained(folder / "labels")
    model, tokenizer = load_generator("random:t5-tiny", tokenizer=folder / "labels")
    save_generator(model, tokenizer, folder / "synth")


def main():
    """Run the suite for so many minutes; exit code 1 where something did not survive."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long it goes on (1)")
    parser.add_argument("--seed", type=int, default=0, help="what disturbances are drawn with (0)")
    parser.add_argument("--slow", action="store_true", help="export, too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    for name in _MODULES:
        import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="tercet-chaos-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder) / "copies"
        scratch.mkdir()
        world = scratch / "world"
        world.mkdir()
        make_world(world, make_models)
        chaos = Chaos(world, scratch, seed=args.seed, slow=args.slow)
        chaos.prepare()
        start_s = time.monotonic()
        try:
            for disturb in chaos.rounds():
                disturb()
                if time.monotonic() - start_s > 60 * args.minutes:
                    break
        finally:
            print(chaos.table(), flush=True)
    sys.exit(1 if chaos.failures else 0)


if __name__ == "__main__":
    main()
