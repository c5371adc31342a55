"""Who makes the candidates of shards: this process, one shard after the other, or the workers of a cluster."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from tercet.distributed.cluster import connected
from tercet.distributed.folders import SentFolder
from tercet.distributed.pool import Pool
from tercet.distributed.settings import ClusterSettings
from tercet.distributed.worker import Work
from tercet.encoder.folder.names import find_folder
from tercet.errors import InputError, ModelError
from tercet.synthesis.candidates import Candidate
from tercet.synthesis.finders import LOOKED_AT
from tercet.synthesis.settings import SynthesisSettings, as_list
from tercet.synthesis.strategies import STRATEGIES, Maker, Model

_MODELS = ("model", "there", "back", "finder")
_MODEL_FILES = (".json", ".model", ".txt", ".safetensors")
_NAMED = 5
"""How many shards that failed are named."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Sentences whose candidates are to be made."""

    number: int
    first: int
    """The number of the first sentence."""

    sentences: list[str]
    seed: int
    num_read: int
    """How many rows were read for them."""

    @property
    def num_rows(self) -> int:
        """How many sentences there are."""
        return len(self.sentences)

    @property
    def label(self) -> str:
        """What the shard is called."""
        return f"shard {self.number}"


Writer: TypeAlias = Callable[[Iterable[Shard]], Iterator[tuple[Shard, list[Candidate]]]]
"""Yields shards with their candidates, in whatever order they are done."""


def write_here(maker: Maker) -> Writer:
    """Return what makes candidates in this process."""

    def write(shards: Iterable[Shard]) -> Iterator[tuple[Shard, list[Candidate]]]:
        for shard in shards:
            yield shard, maker(shard.sentences, first=shard.first, seed=shard.seed)

    return write


@dataclass(frozen=True)
class _Sent:
    """What a worker needs: settings, models as folders, and the sentences that a strategy looks at."""

    settings: SynthesisSettings
    models: dict[str, list[SentFolder]]
    num_samples: int
    every: list[str]
    fingerprint: str
    plan: dict[str, Any]


class _Work:
    """What a worker does."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def __call__(self, shard: Shard) -> list[Candidate]:
        return self._maker(shard.sentences, first=shard.first, seed=shard.seed)

    def try_rows(self, shard: Shard, first: int, last: int) -> None:
        """Make the candidates of some sentences."""
        self._maker(shard.sentences[first:last], first=shard.first + first, seed=shard.seed)


@contextlib.contextmanager
def write_spread(
    cluster: ClusterSettings,
    settings: SynthesisSettings,
    *,
    load: Callable[[SynthesisSettings], Model],
    model: Model,
    maker: Maker,
    num_samples: int,
    sentences: Iterable[str],
) -> Iterator[Writer]:
    """Yield what makes candidates on a cluster: the same ones as here.

    Args:
        cluster: The cluster.
        settings: Everything that can be chosen.
        load: Loads the synthesizer of settings.
        model: The synthesizer of this process, and
        maker: what it makes candidates with: workers check that theirs are the same.
        num_samples: How many candidates each sentence gets.
        sentences: All of them, for strategies that look at others.
    """
    looked_at = {"retrieval": None, "title": LOOKED_AT}.get(settings.strategy, 0)
    every = [*islice(sentences, looked_at)]
    sent = _Sent(settings, _models_of(settings), num_samples, every, model.fingerprint(), maker.plan)
    begin: Callable[[Any], Work] = partial(_begin, load)
    with connected(cluster) as joined, Pool(joined, begin, sent, num_tasks=joined.num_workers) as pool:

        def write(shards: Iterable[Shard]) -> Iterator[tuple[Shard, list[Candidate]]]:
            yield from pool.run(shards)
            if pool.failures:
                said = "; ".join(
                    f"{failure.task.label}: {_where(failure.task, failure.row)}{failure.error}"
                    for failure in pool.failures[:_NAMED]
                )
                raise InputError(
                    f"{len(pool.failures):,} shards cannot be made, the others are done: {said}. "
                    "Fix the sentences or the settings, and start again."
                )

        yield write


def _where(shard: Shard, row: int | None) -> str:
    return (
        "" if row is None else f"sentence {shard.first + row + 1} ({shard.sentences[row][:60]!r}) ends every worker: "
    )


def _models_of(settings: SynthesisSettings) -> dict[str, list[SentFolder]]:
    """Return the models of settings, read here."""
    pickles, revision = settings.convert_pickle, settings.revision
    endings = (*_MODEL_FILES, ".bin") if pickles else _MODEL_FILES
    models = {}
    for name in _MODELS if settings.strategy == "title" else _MODELS[:-1]:
        folders = [
            find_folder(each, revision=revision if name == "model" else None, pickles=pickles)
            for each in as_list(getattr(settings, name))
        ]
        models[name] = [SentFolder.of(folder, of=lambda file: file.suffix in endings) for folder in folders]
    return models


def _begin(load: Callable[[SynthesisSettings], Model], sent: _Sent) -> _Work:
    """Get ready on a worker: the models are folders there."""
    folders = {name: [str(each.unpack()) for each in models] for name, models in sent.models.items() if models}
    changes: dict[str, Any] = {name: found[0] if len(found) == 1 else found for name, found in folders.items()}
    settings = sent.settings.model_copy(update=changes | {"revision": None})
    model = load(settings)
    maker = STRATEGIES[settings.strategy](settings, sent.num_samples, model, sent.every)
    if model.fingerprint() != sent.fingerprint or maker.plan != sent.plan:
        raise ModelError(
            f"{Path(settings.model).name}: is computed in another way on a machine of the cluster than here. "
            "Name engine and precision: --set engine=transformers --set precision=exact."
        )
    return _Work(maker)
