"""Vectors from an encoder whose weights are divided among processes."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from tercet.encoder.encoder import Encoder
from tercet.encoder.forward.batches import batches_by_length
from tercet.encoder.forward.vectors import embed_rows
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.onestep import ENTRY, add_entries
from tercet.encoder.model.tower import Tower, unit_length
from tercet.training.loop.processes import Processes


def shard_tower(tower: Tower, processes: Processes) -> None:
    """Divide a tower's weights among processes: each layer of encoder and decoder is gathered by itself."""
    encoder = tower.backbone.get_submodule("encoder")
    layers = encoder.get_submodule("block" if hasattr(encoder, "block") else "layer")
    units: dict[nn.Module, str | None] = dict.fromkeys(layers.children())
    if tower.has_decoder:
        blocks = [*tower.backbone.get_submodule("decoder.block").children()]
        add_entries(blocks)
        units |= dict.fromkeys(blocks, ENTRY)
    processes.shard(tower, units=units, entry="raw")


class ShardedEncoder:
    """Embeds with weights that no process has all of: every process must ask for the same texts at the same time."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    @torch.no_grad()  # FSDP gathers weights into memory that inference mode would spoil for training
    def encode(self, sentences: Sequence[str]) -> Vectors:
        """Return one vector a text."""
        tower, tokens = self.encoder.tower, self.encoder.tokens
        was_training = tower.training
        tower.eval()
        ids, _ = tokens(sentences)
        vectors = np.empty((len(ids), self.encoder.dim), np.float32)
        for batch in batches_by_length([len(row) for row in ids], max_batch_tokens=4096):
            rows = embed_rows(tower, [ids[i] for i in batch], pad_id=tokens.pad_id)
            vectors[batch] = (unit_length(rows) if tower.head.normalize else rows).cpu().numpy()
        tower.train(was_training)
        return vectors
