"""The texts of any rows, for stages that do not ask what a row says about them."""

from collections.abc import Iterable, Iterator
from itertools import islice

from tercet.data.feeding.sources import Rows, open_rows
from tercet.data.rows.kinds import Row, texts_of
from tercet.data.rows.settings import RowSettings
from tercet.errors import SettingError
from tercet.storage.hashing import text_key
from tercet.training.stages.stage import REFERENCE, Context


def open_texts(rows: RowSettings, context: Context) -> Rows:
    """Open rows for the sake of their texts."""
    return open_rows(placed(rows, context), kind="texts", rank=context.processes.rank, progress=context.progress)


def placed(rows: RowSettings, context: Context) -> RowSettings:
    """Return the rows with the files of earlier stages in place of their names."""
    if not any(source.path.startswith(REFERENCE) for source in rows.sources):
        return rows
    sources = [source.model_copy(update={"path": context.place(source.path)}) for source in rows.sources]
    return rows.model_copy(update={"sources": sources})


def different_texts(rows: Iterable[Row]) -> Iterator[str]:
    """Yield each text of rows once, in their order."""
    seen: set[int] = set()
    for row in rows:
        for text in texts_of(row):
            key = text_key(text)
            if key not in seen:
                seen.add(key)
                yield text


def check_end(rows: Rows, context: Context) -> None:
    """Raise SettingError where rows have no end, and all of them are needed."""
    if rows.num_rows is None:
        raise SettingError(f"stages.{context.name}.rows: are streamed, without end. Set stream: false.")


class TextSample:
    """Some of the texts of rows, drawn from all of them.

    Raises:
        SettingError: The rows have no end.
    """

    def __init__(self, rows: RowSettings, context: Context) -> None:
        self._rows, self._seed = open_texts(rows.model_copy(update={"shuffle": True}), context), context.seed
        check_end(self._rows, context)
        self.inputs = self._rows.describe()

    def draw(self, max_texts: int) -> list[str]:
        """Return different texts."""
        batches = self._rows.batches(batch=1, seed=self._seed, epochs=1)  # larger ones leave the last rows out
        return [*islice(different_texts(row for batch in batches for row in batch), max_texts)]
