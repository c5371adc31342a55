"""An Encoder whose texts are embedded by the workers of a cluster: the same chunks, so the same vectors."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

from tercet.distributed.cluster import connected
from tercet.distributed.pool import Pool
from tercet.distributed.settings import ClusterSettings
from tercet.distributed.worker import Work
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.settings import Embedded, EmbedOptions
from tercet.errors import InputError, TercetError

_MAX_WAITING = 256
"""How many chunks may be under way or done behind one that is not."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    texts: list[str]
    options: EmbedOptions

    @property
    def num_rows(self) -> int:
        return len(self.texts)

    @property
    def label(self) -> str:
        return f"chunk {self.number}"


class _Work:
    """What a worker does."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __call__(self, chunk: _Chunk) -> Embedded:
        (embedded,) = self._encoder.embed_each([chunk.texts], **chunk.options)
        return embedded

    def try_rows(self, chunk: _Chunk, first: int, last: int) -> None:
        """Embed some texts of a chunk."""
        self._encoder.embed(chunk.texts[first:last], **chunk.options)


def _begin(device: str, encoder: Encoder) -> _Work:
    return _Work(encoder.to(device))


class SpreadEncoder(Encoder):
    """An Encoder that gives chunks of texts to a pool of workers; `spread_encoder` makes one."""

    _pool: Pool

    @classmethod
    def of(cls, encoder: Encoder, pool: Pool) -> "SpreadEncoder":
        """Return an Encoder that is the same in everything but who computes."""
        spread = cls.__new__(cls)
        spread.__dict__ |= encoder.__dict__
        spread._pool = pool
        return spread

    def embed_each(self, chunks: Iterable[Sequence[str]], **options: Unpack[EmbedOptions]) -> Iterator[Embedded]:
        """Do as `Encoder.embed_each`; the workers have some chunks each."""
        progress = options.pop("progress", False)
        options["precision"] = self.resolve_precision(options.get("precision", "exact"))
        options["max_batch_tokens"] = self.batch_tokens(options.get("max_batch_tokens"))
        done: dict[int, Embedded] = {}
        number, num_truncated = 0, 0
        self._pool.failures.clear()

        def tasks() -> Iterator[_Chunk | None]:
            for i, texts in enumerate(chunks):
                while i >= number + _MAX_WAITING:  # what is done out of turn is in memory
                    yield None
                yield _Chunk(i, [*texts], options)

        for chunk, embedded in self._pool.run(tasks()):
            done[chunk.number] = embedded
            num_truncated += embedded.stats.num_truncated
            if callable(progress):
                progress(chunk.num_rows, note=f"{num_truncated:,} truncated" if num_truncated else None)
            while number in done:
                yield done.pop(number)
                number += 1
        for failure in sorted(self._pool.failures, key=lambda failure: failure.task.number):
            if isinstance(failure.error, TercetError):
                raise failure.error
            text = "" if failure.row is None else f" at the text {failure.task.texts[failure.row][:60]!r}"
            raise InputError(f"texts: each worker ended{text} ({failure.error}). Leave it out, or look at Ray's logs.")


@contextlib.contextmanager
def spread_encoder(encoder: Encoder, settings: ClusterSettings | None) -> Iterator[Encoder]:
    """Yield an encoder whose texts the workers of a cluster embed while the block runs; itself where there is none."""
    if settings is None:
        yield encoder
        return
    begin: Callable[[Any], Work] = partial(_begin, "cuda" if settings.gpus_per_worker else "cpu")
    with connected(settings) as cluster, Pool(cluster, begin, encoder, num_tasks=cluster.num_workers) as pool:
        yield SpreadEncoder.of(encoder, pool)
