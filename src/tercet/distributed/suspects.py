"""Which row of a shard ends every worker that computes it."""

_PARTS = 16
"""Into how many pieces a suspected range is cut."""

_CERTAIN = 2
"""How many workers one row alone has to end."""


class Search:
    """Looks for a row: gives ranges to try, and is told what became of each.

    Args:
        num_rows: How many rows there are.
    """

    def __init__(self, num_rows: int) -> None:
        self._left = _cut(0, num_rows)[::-1]
        self._num_ended = 0
        self.found: int | None = None
        """The row, once it is certain."""

    @property
    def range(self) -> tuple[int, int] | None:
        """The rows to try next, from the first to before the last; None where the search is over."""
        return self._left[-1] if self._left and self.found is None else None

    def passed(self) -> None:
        """Take note that the rows ended no worker."""
        self._left.pop()
        self._num_ended = 0

    def ended(self) -> None:
        """Take note that a worker ended with the rows: it was one of them, or chance."""
        first, last = self._left[-1]
        if last - first > 1:
            self._left[-1:] = _cut(first, last)[::-1]
            return
        self._num_ended += 1
        if self._num_ended == _CERTAIN:
            self.found = first


def _cut(first: int, last: int) -> list[tuple[int, int]]:
    step = -(-(last - first) // _PARTS)
    return [(start, min(start + step, last)) for start in range(first, last, step)]
