"""Vectors from an encoder whose weights are divided among processes."""

from collections.abc import Sequence

import numpy as np
import torch

from tercet.encoder.encoder import Encoder
from tercet.encoder.forward.batches import batches_by_length
from tercet.encoder.forward.vectors import embed_rows
from tercet.encoder.model.arrays import Vectors
from tercet.encoder.model.tower import unit_length


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
