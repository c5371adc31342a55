"""The texts of a batch: each computed once, and known by a number that is the same in every process."""

from collections.abc import Sequence


def merge_equal(texts: Sequence[str], *, apart: Sequence[bool] | None = None) -> tuple[list[str], list[int]]:
    """Return each different text once, and where each of `texts` stands among them.

    Args:
        texts: Any texts.
        apart: For each text, whether it stays by itself although others may be equal; where None, none does.
    """
    places: dict[str, int] = {}
    merged: list[str] = []
    where = []
    for text, alone in zip(texts, [False] * len(texts) if apart is None else apart, strict=True):
        place = len(merged) if alone else places.setdefault(text, len(merged))
        if place == len(merged):
            merged.append(text)
        where.append(place)
    return merged, where
