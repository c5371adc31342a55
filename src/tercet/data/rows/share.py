"""A share of rows: which are in it is decided by a hash of their texts, so that two parts of one file never overlap."""

from tercet.data.rows.kinds import NliPair, Row, Text, Triplet, texts_of
from tercet.storage.hashing import text_place

Share = float | tuple[float, float]
"""How much of a source is used, or from where to where."""


def is_in_share(row: Row, share: Share) -> bool:
    """Return whether a row is in a share; in an interval all rows of one anchor have one place."""
    if isinstance(share, tuple):
        low, high = share
        return low <= place_of(row) < high
    match row:
        case NliPair():
            key = row.premise
        case Text():  # a share of texts was first drawn when each was a pair with itself
            key = f"{row.text}\0{row.text}"
        case _:
            key = "\0".join(texts_of(row))
    return text_place(key) < share


def place_of(row: Row) -> float:
    """Return where a row lies among all rows, from 0 to below 1: those of one anchor or premise lie together."""
    match row:
        case NliPair():
            return text_place(row.premise)
        case Triplet():
            return text_place(row.anchor)
        case _:
            return text_place("\0".join(texts_of(row)))
