"""The stage `judge`: many NLI pairs of few, by a linear judge of an encoder's vectors."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.settings import RowSettings
from tercet.storage.files import atomic_write
from tercet.training.objectives.generate import InferenceRow, pairs_of
from tercet.training.stages.mine import Ranks, check_enough, neighbours_of
from tercet.training.stages.model import StageModel
from tercet.training.stages.stage import Context, Kind, StageSettings
from tercet.training.stages.texts import TextSample, check_end, placed
from tercet.vectors.remembered import RememberedVectors

_AT_A_TIME = 16_384
_MAX_ITERATIONS = 150


class JudgeStage(StageSettings):
    """The settings of a stage that labels pairs."""

    model: StageModel
    """The encoder whose vectors are judged."""

    rows: RowSettings
    """Triplets and NLI pairs: the judge learns from them, and their sentences meet anew."""

    texts: RowSettings | None = None
    """Sentences of which nothing is said: each is a premise, and has a part of itself for its hypothesis."""

    max_texts: int = Field(default=30_000, ge=1)
    """How many of them there are, drawn from all."""

    ranks: Ranks = Field(default=[5, 15, 40, 100])
    """A premise meets a hypothesis of one of the nearest 5 premises, of one of the next, up to rank 15, and so on."""

    certainty: float = Field(default=0.75, ge=0.5, lt=1)
    """How sure the judge is at least of a pair that is kept."""

    precision: Literal["exact", "fast", "int8", "auto"] = "auto"
    """How they are embedded."""

    cache: Path | None = None
    """The folder where vectors are kept for other stages and runs, too; in the run's own where null."""

    def names(self) -> list[str]:
        """Return the models and files that the stage uses."""
        texts = [] if self.texts is None else self.texts.sources
        return [*self.model.names(), *(source.path for source in [*self.rows.sources, *texts])]


class LinearJudge:
    """A logistic regression on two vectors, with as little weight as it needs (C = 1).

    Args:
        vectors: Of each pair, those of premise and hypothesis [n, 2, width].
        entailed: Whether each hypothesis is entailed: 1 or 0 [n].
    """

    def __init__(self, vectors: Tensor, entailed: Tensor) -> None:
        features = pair_features(vectors)
        self._weight = torch.zeros(features.shape[1], requires_grad=True)
        self._bias = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [self._weight, self._bias], max_iter=_MAX_ITERATIONS, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            error = F.binary_cross_entropy_with_logits(features @ self._weight + self._bias, entailed)
            total = error + 0.5 * self._weight.square().sum() / len(entailed)
            total.backward()
            return total

        optimizer.step(loss)

    @torch.no_grad()
    def __call__(self, vectors: Tensor) -> Tensor:
        """Return how likely each hypothesis is entailed [n]."""
        return (pair_features(vectors) @ self._weight + self._bias).sigmoid()


def pair_features(vectors: Tensor) -> Tensor:
    """Return what a pair is judged by: the hypothesis, how it differs from the premise, what they have in common."""
    premises, hypotheses = vectors.unbind(1)
    common = premises * hypotheses
    return torch.cat([hypotheses, (premises - hypotheses).abs(), common, 10 * common.sum(1, keepdim=True)], dim=1)


class _Judge:
    def __init__(self, settings: JudgeStage, context: Context) -> None:
        self._settings, self._context = settings, context
        self._rows = open_rows(placed(settings.rows, context), kind="inference", rank=context.processes.rank)
        check_end(self._rows, context)
        self.inputs = {"model": settings.model.describe(context), "rows": self._rows.describe()}
        self._sample = None if settings.texts is None else TextSample(settings.texts, context, setting="texts")
        if self._sample is not None:
            self.inputs["texts"] = self._sample.inputs

    def run(self) -> dict[str, Any]:
        settings, context = self._settings, self._context
        if not context.processes.is_main:
            return {}
        labelled = [pair for row in self._rows for pair in pairs_of(cast("InferenceRow", row))]
        pairs = [(pair.premise, pair.hypothesis) for pair in labelled]
        if self._sample is not None:
            generator = random.Random(context.seed)  # noqa: S311  # for data, not for secrets
            pairs += [(text, part_of(text, generator)) for text in self._sample.draw(settings.max_texts)]
        check_enough(len({premise for premise, _ in pairs}), settings.ranks, context)
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        cache = settings.cache or context.teachers
        store = RememberedVectors(cache, settings.model.load_in(context), precision=settings.precision)
        keys = store.add(lambda: texts, label="judging", progress=context.progress)
        vectors, place = torch.from_numpy(store(keys)).float(), {text: i for i, text in enumerate(texts)}
        own = torch.tensor([[place[premise], place[hypothesis]] for premise, hypothesis in pairs])
        entailed = torch.tensor([float(pair.label == "entailment") for pair in labelled])
        judge = LinearJudge(vectors[own[: len(labelled)]], entailed)
        others = meetings(own, vectors, settings.ranks, seed=context.seed)
        met = torch.cat([own[len(labelled) :], *others])
        met = met[torch.randperm(len(met), generator=torch.Generator().manual_seed(context.seed))]
        likely = torch.cat([judge(vectors[block]) for block in met.split(_AT_A_TIME)])
        kept = {
            "entailment": met[likely >= settings.certainty],
            "contradiction": met[likely <= 1 - settings.certainty],
        }
        num = min(map(len, kept.values()))
        with atomic_write(context.folder / KIND.output, "w") as stream:
            for label, chosen in kept.items():
                for first, second in chosen[:num].tolist():
                    row = {"premise": texts[first], "hypothesis": texts[second], "label": label}
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return {"num_met": len(met), "num_rows": 2 * num}


def part_of(text: str, generator: random.Random) -> str:
    """Return some of the words of a text that stand together: half of them at least."""
    words = text.split()
    num = generator.randint(-(-len(words) // 2), len(words))
    start = generator.randint(0, len(words) - num)
    return " ".join(words[start : start + num])


def meetings(pairs: Tensor, vectors: Tensor, ranks: list[int], *, seed: int) -> Iterator[Tensor]:
    """Yield pairs [n, 2] of a premise and a hypothesis of one of its neighbours.

    Args:
        pairs: Premises and their own hypotheses, as places of vectors [n, 2].
        vectors: [m, width]
        ranks: Where each range of neighbours ends; one is drawn of each.
        seed: What they are drawn with.
    """
    premises, hypotheses = pairs.unbind(1)
    firsts = premises.unique()
    order = premises.argsort(stable=True)
    rows = order.split(torch.bincount(premises)[firsts].tolist())
    generator = torch.Generator().manual_seed(seed)
    for first, found in zip(firsts, neighbours_of(vectors[firsts], ranks, seed=seed), strict=True):
        for other in found:
            row = rows[other][torch.randint(len(rows[other]), (1,), generator=generator)]
            yield torch.stack([first[None], hypotheses[row]], dim=1)


KIND = Kind(JudgeStage, _Judge, output="rows.jsonl", rows="inference")
