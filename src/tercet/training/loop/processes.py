"""The processes of one training: who they are, and what they tell one another."""

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import torch
from torch import Tensor, nn

_BUCKET_BYTES = 32 * 2**20
_PATIENCE = timedelta(days=30)
"""How long processes wait for one another: what the main one does alone may take days."""


@dataclass(frozen=True)
class Processes:
    """All processes of a training, seen from one of them. One process alone is the usual case."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    shards: bool = False
    """Whether parameters are divided among the processes (FSDP)."""

    @classmethod
    def start(cls) -> "Processes":
        """Join the other processes, where `torchrun` or `accelerate launch` started several."""
        from accelerate import PartialState

        state = PartialState(cpu=not torch.cuda.is_available(), timeout=_PATIENCE)
        wants_shards = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("1", "true")
        world = state.num_processes
        return cls(state.process_index, world, state.device, shards=wants_shards and world > 1)

    def stop(self) -> None:
        """Leave the other processes."""
        if self.world > 1:
            torch.distributed.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes files and shows a bar."""
        return self.rank == 0

    def share(self, value: float) -> float:
        """Return what the main process has; the others' values are not looked at."""
        if self.world == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(shared, src=0)
        return float(shared)

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.world > 1:
            torch.distributed.barrier()

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of all processes, in each of them. Those of sharded parameters are added up already."""
        if self.world == 1:
            return
        for bucket in _buckets([p.grad for p in parameters if p.grad is not None and not is_sharded(p)]):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            torch.distributed.all_reduce(flat)
            start = 0
            for gradient in bucket:
                gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
                start += gradient.numel()

    def shard(self, module: nn.Module, *, units: Mapping[nn.Module, str | None], entry: str) -> None:
        """Divide a module's parameters among the processes, as accelerate's FSDP configuration says.

        Args:
            module: The module.
            units: Parts of it whose parameters are gathered, used and let go together, and the method of each that
                computes, where they are not called themselves; the rest is one more unit.
            entry: The method of the module that computes.
        """
        from accelerate import FullyShardedDataParallelPlugin
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

        plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
        mesh = init_device_mesh(self.device.type, (self.world,))
        for part in (*units, module):
            fully_shard(
                part,
                mesh=mesh,
                reshard_after_forward=bool(plugin.reshard_after_forward),
                offload_policy=plugin.cpu_offload,
            )
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # gradients are summed, as sum_gradients does
                part.set_force_sum_reduction_for_comms(True)  # gloo knows no other reduction
        for part, method in {**units, module: entry}.items():
            if method is not None:
                register_fsdp_forward_method(part, method)
        # a warning about changes in place, which the layers of transformers do not make
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


def is_sharded(tensor: Tensor) -> bool:
    """Return whether a tensor is divided among processes."""
    return hasattr(tensor, "full_tensor")


def settled(tensor: Tensor) -> Tensor:
    """Return a tensor whose sums over processes, where it has any still to be made, are made."""
    if not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    divided = cast(DTensor, tensor)
    placements = [Replicate() if placement.is_partial() else placement for placement in divided.placements]
    return divided.redistribute(placements=placements)


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor on the CPU, gathered where it is divided among processes: all of them must ask."""
    gathered: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return gathered.detach().cpu().contiguous()


def like(value: Tensor, parameter: Tensor) -> Tensor:
    """Return a tensor where a parameter is, divided as it is where they have the same first dimension."""
    value = value.to(parameter.device)
    if value.dim() == 0 or not is_sharded(parameter):
        return value
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

    divided = cast(DTensor, parameter)
    same = value.shape[:1] == parameter.shape[:1]
    return distribute_tensor(value, divided.device_mesh, divided.placements if same else [Replicate()])


def _buckets(gradients: list[Tensor]) -> Iterable[list[Tensor]]:
    bucket: list[Tensor] = []
    for gradient in gradients:
        bucket.append(gradient)
        if sum(g.numel() * g.element_size() for g in bucket) >= _BUCKET_BYTES:
            yield bucket
            bucket = []
    if bucket:
        yield bucket
