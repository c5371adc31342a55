"""What the workers of these tests do: small tasks that go wrong in chosen ways, each leaving a line in a file."""

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

import ray

from tercet import Encoder
from tercet.errors import InputError, OutputError


@dataclass(frozen=True)
class Row:
    """A task: rows from a number on."""

    number: int
    num_rows: int = 100
    how: str = "well"

    @property
    def label(self):
        return f"task {self.number}"


@dataclass(frozen=True)
class Doing:
    """Does tasks; keeps a record of who did what in a folder."""

    folder: Path
    poison: int | None = None
    """The row of a task marked `poison` that ends the process."""

    full_node: str = ""

    def __call__(self, task):
        with (self.folder / f"{task.number}.tries").open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        num_tries = len((self.folder / f"{task.number}.tries").read_text().splitlines())
        if task.how == "dies once" and num_tries == 1:
            os._exit(1)
        if task.how == "poison":
            os._exit(1)
        if task.how == "hangs once" and num_tries == 1:
            time.sleep(600)
        if task.how == "refused":
            raise InputError(f"in.txt: row {task.number} is too long. Cut it.")
        if task.how == "odd":
            raise KeyError("odd")
        if task.how == "odd once" and num_tries == 1:
            raise KeyError("odd")
        if self.full_node:
            met = self.folder / "met the full node"
            if ray.get_runtime_context().get_node_id() == self.full_node:
                met.touch()
                raise OutputError(f"cannot write: {os.strerror(errno.ENOSPC)}")
            while not met.exists():
                time.sleep(0.05)
        return task.number * 2

    def try_rows(self, task, first, last):
        if task.how == "poison" and self.poison is not None and first <= self.poison < last:
            os._exit(1)


def make_doing(shared):
    return shared


class Brittle(Encoder):
    """An encoder that ends the process at a text, waits at another, and leaves a note of each text in a folder."""

    def embed_each(self, chunks, **options):
        def watched():
            for chunk in chunks:
                if "poison" in chunk:
                    os._exit(1)
                if "slow" in chunk:
                    time.sleep(0.5)
                yield chunk

        return super().embed_each(watched(), **options)
