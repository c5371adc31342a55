"""The exchange of vectors between processes.

Every process computes the vectors of its own rows, gets those of the others, and computes the loss of the whole batch.
Its gradient reaches the process's own vectors only. So the gradients of the whole batch are the SUM of those of the
processes, and that is how the training loop has to reduce them.
"""

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional as F


class Gather:
    """Brings together what the processes of the default group have.

    Attributes:
        rank: Which of the processes this is.
        world: How many there are.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()

    def parts(self, own: Tensor) -> list[Tensor]:
        """Return the tensor of every process, by rank; only their first sizes may differ. Nothing flows back."""
        own = own.detach()
        sizes = [torch.empty(1, dtype=torch.int64, device=own.device) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([len(own)], device=own.device))
        num_rows = [int(size) for size in sizes]
        padding = [0, 0] * (own.dim() - 1) + [0, max(num_rows) - len(own)]
        padded = F.pad(own, padding)
        parts = [torch.empty_like(padded) for _ in range(self.world)]
        dist.all_gather(parts, padded)
        return [part[:num] for part, num in zip(parts, num_rows, strict=True)]

    def __call__(self, own: Tensor) -> Tensor:
        """Return the rows of all processes, by rank; gradients flow back to the own ones."""
        parts = self.parts(own)
        parts[self.rank] = own
        return torch.cat(parts)

    def total(self, number: Tensor, *, device: torch.device) -> Tensor:
        """Return the sum of a number over the processes, on the CPU.

        Args:
            number: A tensor of no dimension, wherever it is.
            device: Where the processes exchange tensors: that of the model.
        """
        return torch.cat(self.parts(number.to(device)[None])).sum().cpu()

    def share(self, parameter: Tensor) -> Tensor:
        """Return a parameter of the loss, which all processes compute: its gradient is this process's share."""
        fixed = parameter.detach()
        return fixed + (parameter - fixed) / self.world
