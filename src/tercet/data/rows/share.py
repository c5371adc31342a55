"""A share of rows: which are in it is decided by a hash of their texts, so that two parts of one file never overlap."""

from tercet.data.rows.kinds import LabelledPair, Row, Triplet, texts_of
from tercet.storage.hashing import text_place

Share = float | tuple[float, float]
"""How much of a source is used, or from where to where."""


def is_in_share(row: Row, share: Share) -> bool:
    """Return whether a row is in a share; in an interval all rows of one anchor have one place."""
    if isinstance(row, LabelledPair):
        key = row.premise
    elif isinstance(row, Triplet) and isinstance(share, tuple):
        key = row.anchor
    else:
        key = "\0".join(texts_of(row))
    low, high = share if isinstance(share, tuple) else (0.0, share)
    return low <= text_place(key) < high
