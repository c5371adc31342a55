"""Has an encoder collapsed: does it give all texts the same vector?"""

import itertools
import logging

import numpy as np

from tercet.data.feeding.sources import Rows
from tercet.data.rows.kinds import texts_of
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import unit

logger = logging.getLogger("tercet")

_NUM_ROWS = 32
_LEAST_COSINE = 0.9999


def warn_of_collapse(encoder: Encoder, rows: Rows, *, name: str) -> None:
    """Warn, by name, where different texts of the first rows have vectors that cannot be told apart.

    Args:
        encoder: An encoder that was trained.
        rows: What it learned from; nothing is done for a stream, which would be read again.
        name: The stage.
    """
    if rows.num_rows is None:
        return
    texts = sorted({text for row in itertools.islice(rows, _NUM_ROWS) for text in texts_of(row)})
    if len(texts) < 2:
        return
    vectors = unit(np.concatenate([part.vectors for part in encoder.embed_each([texts])]))
    if float((vectors @ vectors.T).min()) > _LEAST_COSINE:
        logger.warning(
            "%s: the encoder has collapsed: it gives %d different texts the same vector. Lower learning_rate.",
            name,
            len(texts),
        )
