"""Rows in two parts: one to learn from, and one that is held out to score by. No anchor or premise is in both."""

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.columns import RowKind
from tercet.data.rows.settings import HeldOut, HeldOutRule, RowSettings, SourceSettings
from tercet.data.rows.share import place_of
from tercet.errors import InputError, SettingError


def split_rows(settings: RowSettings, held_out: HeldOut, *, kind: RowKind) -> tuple[RowSettings, RowSettings]:
    """Divide rows at a place, so that the wanted share of their anchors lies after it.

    The place follows from the rows alone: the same rows are divided in the same way on every machine.

    Args:
        settings: All rows; they are read to find the place.
        held_out: Which share of them is held out.
        kind: As what they are read.

    Returns:
        The rows to learn from, and those that are held out: the same sources, with other shares.

    Raises:
        SettingError: A source is streamed, or has a share that is no interval.
        InputError: All rows have one anchor.
    """
    check_divisible(settings)
    opened = open_rows(settings, kind=kind, rank=1)  # who opens the parts is told of bad rows
    found = [[place_of(row) for row in rows] for rows in opened.apart()]
    border = _border(found, held_out, name=settings.sources[0].path)
    sources = [*zip(settings.sources, found, strict=True)]
    parts = (
        [_within(source, 0.0, border) for source, places in sources if min(places) < border],
        [_within(source, border, 1.0) for source, places in sources if max(places) >= border],
    )
    learned, scored = (settings.model_copy(update={"sources": part}) for part in parts)
    return learned, scored


def check_divisible(settings: RowSettings) -> None:
    """Raise SettingError if rows cannot be divided: a source is streamed, or has a share that is no interval."""
    for source in settings.sources:
        if source.stream:
            raise SettingError(f"{source.path}: no part of a stream can be held out. Set stream: false.")
        if not isinstance(source.share, tuple) and source.share != 1:
            raise SettingError(
                f"{source.path}: no part of the share {source.share} can be held out. Say from where to where: "
                f"[0, {source.share}]."
            )


def _border(found: list[list[float]], held_out: HeldOut, *, name: str) -> float:
    """Return the place that the wanted share of all anchors lies at or after, exactly."""
    num_rows = sum(map(len, found))
    share = held_out.share(num_rows) if isinstance(held_out, HeldOutRule) else held_out
    places = sorted({place for own in found for place in own})
    if len(places) < 2:
        raise InputError(f"{name}: all rows have one anchor, so none can be held out. Give rows with other anchors.")
    return places[-min(max(1, round(share * len(places))), len(places) - 1)]


def _within(source: SourceSettings, low: float, high: float) -> SourceSettings:
    """Return the part of a source that lies between two places."""
    first, last = source.share if isinstance(source.share, tuple) else (0.0, 1.0)
    return source.model_copy(update={"share": (max(first, low), min(last, high))})
