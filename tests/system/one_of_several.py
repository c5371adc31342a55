"""One process of several: for each case a step on its slice of a batch, and the gradients summed over all.

python one_of_several.py RANK WORLD FOLDER
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import distributed as dist
from torch.distributed.fsdp import FSDPModule

from tercet import Encoder
from tercet.data.rows.kinds import NliPair, ParallelPair, Text, Triplet
from tercet.training.loop.processes import Processes, is_sharded
from tercet.training.objectives.classify import NliClassifier
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.contrast import Contrast, ContrastSettings
from tercet.training.objectives.distill import Distill, DistillSettings
from tercet.training.objectives.gather import Gather
from tercet.training.objectives.parallel import Parallel, ParallelSettings
from tercet.training.objectives.tension import Tension, TensionSettings
from tercet.training.stages.sharded import shard_tower

# equal texts within a slice and across slices, as anchors, positives and negatives; slices of 3 and 2 rows
TRIPLETS = [
    Triplet("Dogs run.", "Stocks dropped.", ("A man plays.",)),
    Triplet("A man is playing a guitar on the stage.", "Dogs run.", ("Snow.", "Stocks dropped.")),
    Triplet("Dogs run.", "River."),
    Triplet("Deep snow.", "Stocks dropped.", ("River.", "A man plays.")),
    Triplet("Dogs run.", "The old wooden fence.", ("Deep snow.",)),
]
PAIRS = [
    NliPair("Dogs run.", "Dogs move.", "entailment"),
    NliPair("Dogs run.", "Dogs sleep.", "contradiction"),
    NliPair("A man plays.", "The man is tall.", "neutral"),
    NliPair("Dogs run.", "A man plays.", "neutral"),
    NliPair("Deep snow.", "Snow.", "entailment"),
]
PARALLEL = [ParallelPair(row.anchor, row.positive) for row in TRIPLETS]
TARGETS = torch.randn(97, 24, generator=torch.Generator().manual_seed(4))
CASES = {
    "contrast": ("contrast", False),
    "classify": ("classify", False),
    "sharded": ("contrast", True),
    "sharded-decoder": ("contrast", True),
    "parallel": ("parallel", False),
    "parallel-sharded": ("parallel", True),
    "dual": ("dual", False),
    "multilingual": ("multilingual", False),
    "distill": ("distill", False),
    "tension": ("tension", False),
}
"""Objectives, and whether weights are divided among the processes."""

SLICES = [slice(0, 3), slice(3, 5)]

SETTINGS = ContrastSettings(
    learn_temperature=True, hard_negative_weight=0.3, directions="both", margin=0.1, mask_duplicates=True
)


def take_step(name, encoder, rows, compute, folder, gather=None):
    """Return a step's result and its gradients."""
    if name == "contrast":
        objective, batch = Contrast(encoder, SETTINGS, compute=compute, gather=gather), TRIPLETS
    elif name == "parallel":  # the second step has the sources of the first in its queue
        frozen, batch = Encoder.load(folder / "source", device="cpu"), PARALLEL
        settings = ParallelSettings(queue=8, temperature=0.3, mask_duplicates=True)
        objective = Parallel(
            encoder, lambda texts: torch.from_numpy(frozen.embed(texts)), settings, compute=compute, gather=gather
        )
        objective.step(batch[rows])
        objective.module.zero_grad()
    elif name in ("dual", "multilingual"):
        source = Encoder.load(folder / "source", device="cpu") if name == "dual" else encoder
        settings, batch = ParallelSettings(design=name), PARALLEL
        objective = Parallel(encoder, source, settings, compute=compute, gather=gather)
    elif name == "distill":
        settings, batch = DistillSettings(pair_weight=3.0), TRIPLETS
        objective = Distill(encoder, lambda keys: TARGETS[keys % 97], settings, compute=compute, gather=gather)
    elif name == "tension":
        other, batch = Encoder.load(folder / "model", device="cpu"), [Text(row.anchor) for row in TRIPLETS]
        objective = Tension(encoder, other, TensionSettings(negatives=2), compute=compute, gather=gather)
    else:
        objective, batch = NliClassifier(encoder, compute=compute, gather=gather), PAIRS
    result = objective.step(batch[rows])
    return result, {name: p.grad for name, p in objective.module.named_parameters() if p.grad is not None}


def model_of(case, folder):
    """Return the model that a case trains."""
    return Encoder.load(folder / ("model-decoder" if case.endswith("decoder") else "model"), device="cpu")


def main() -> None:
    """Take the steps, sum the gradients, write them."""
    torch.set_num_threads(1)
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=world)
    compute = ComputeSettings(max_activation_gb=1e-3 if rank else 10, max_batch_tokens=20)
    for case, (name, sharded) in CASES.items():
        encoder = model_of(case, folder)
        if sharded:
            shard_tower(encoder.tower, Processes(rank, world, torch.device("cpu"), shards=True))
            layers = [*encoder.tower.backbone.encoder.block]
            layers += [*encoder.tower.backbone.decoder.block] if case.endswith("decoder") else []
            assert all(isinstance(part, FSDPModule) for part in (*layers, encoder.tower))
        result, gradients = take_step(name, encoder, SLICES[rank], compute, folder, Gather())
        for parameter, gradient in gradients.items():
            if is_sharded(gradient):
                gradients[parameter] = gradient.full_tensor()
            else:
                dist.all_reduce(gradient, op=dist.ReduceOp.SUM)
        numbers = {"loss": result.loss, **{f"metric:{key}": value for key, value in result.metrics.items()}}
        tensors = gradients | {key: torch.tensor(value) for key, value in numbers.items()}
        save_file(tensors, folder / f"{case}-{rank}.safetensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
