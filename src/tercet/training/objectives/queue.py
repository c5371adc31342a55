"""A queue of vectors: when it is full, the newest take the place of the oldest."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Queue:
    """The last vectors that were put in, with the keys of their texts. Nothing flows back through it.

    Args:
        size: How many vectors it holds.
        width: How many numbers a vector has.
        device: Where they are.
    """

    def __init__(self, size: int, width: int, *, device: torch.device) -> None:
        self._size = size
        self._vectors = torch.zeros(size, width, device=device)
        self._keys = torch.zeros(size, dtype=torch.int64, device=device)
        self._num_pushed = 0

    def __len__(self) -> int:
        return min(self._num_pushed, self._size)

    @property
    def vectors(self) -> Tensor:
        """The vectors that are there [len(self), width]."""
        return self._vectors[: len(self)]

    @property
    def keys(self) -> Tensor:
        """The keys of their texts."""
        return self._keys[: len(self)]

    @torch.no_grad()
    def push(self, vectors: Tensor, keys: Tensor) -> None:
        """Put vectors in; of more than it holds, the last ones stay."""
        if self._size:
            numbers = torch.arange(self._num_pushed, self._num_pushed + len(vectors), device=self._vectors.device)
            places = numbers[-self._size :] % self._size
            self._vectors[places] = vectors[-self._size :].to(self._vectors)
            self._keys[places] = keys[-self._size :].to(self._keys)
            self._num_pushed += len(vectors)

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything as tensors."""
        return {"vectors": self._vectors, "keys": self._keys, "num_pushed": torch.tensor(self._num_pushed)}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Put back what `state_dict` returned."""
        self._vectors.copy_(state["vectors"])
        self._keys.copy_(state["keys"])
        self._num_pushed = int(state["num_pushed"])
