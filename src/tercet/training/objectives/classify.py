"""Classification: what a premise says about a hypothesis, from both vectors and their difference."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tercet.data.rows.kinds import LABELS, NliPair
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.tower import unit_length
from tercet.training.loop.loop import StepResult
from tercet.training.objectives.batch import merge_equal
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.gradient_cache import learn


class NliClassifier:
    """The softmax over three labels of a linear layer on [u, v, |u - v|]; the layer is not part of the encoder.

    Args:
        encoder: What is trained.
        compute: How it is computed.
        gather: The exchange with the other processes; None where there are none. With it, the gradients of a step are
            those of the whole batch once they are summed over the processes.
        seed: What the layer's first weights are drawn with.

    Attributes:
        module: Everything that is trained: the tower and the layer.
    """

    def __init__(
        self, encoder: Encoder, *, compute: ComputeSettings, gather: Gather | None = None, seed: int = 0
    ) -> None:
        self._encoder = encoder
        self._compute = compute
        self._gather = gather
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._classifier = nn.Linear(3 * encoder.dim, len(LABELS)).to(encoder.device)
        self.module = nn.ModuleDict({"tower": encoder.tower, "classifier": self._classifier})

    def step(self, batch: Sequence[NliPair]) -> StepResult:
        """Add the gradients of a batch's loss to the module's."""
        device = self._encoder.device
        texts = [*(row.premise for row in batch), *(row.hypothesis for row in batch)]
        merged, where = merge_equal(texts)
        premises, hypotheses = torch.tensor(where, device=device).chunk(2)
        labels = torch.tensor([LABELS.index(row.label) for row in batch], device=device)
        num_rows = self._total(torch.tensor(float(len(batch)), device=device))
        num_right = torch.tensor(0.0)

        def loss(vectors: Tensor) -> Tensor:
            nonlocal num_right
            vectors = unit_length(vectors) if self._encoder.head.normalize else vectors
            u, v = vectors[premises], vectors[hypotheses]
            scores = self._classifier(torch.cat([u, v, (u - v).abs()], dim=1))
            num_right = (scores.argmax(1) == labels).float().sum()
            return F.cross_entropy(scores, labels, reduction="sum") / num_rows

        value, stats = learn(self._encoder, merged, loss, compute=self._compute, gather=self._gather)
        accuracy = self._total(num_right) / num_rows
        metrics = {"accuracy": accuracy.item(), "truncated": stats.num_truncated / stats.num_texts}
        return StepResult(self._total(value).item(), metrics)

    def _total(self, number: Tensor) -> Tensor:
        """Return the sum of a number over the processes."""
        return number if self._gather is None else self._gather.total(number, device=self._encoder.device)
