"""The processes of one training: who they are, and what they tell one another."""

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Return whether a tensor is divided among processes."""
    return hasattr(tensor, "full_tensor")
