"""Datasets of the hub as records: fetched once and read anywhere, or streamed from their start."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tercet.data.reading.entries import Entry
from tercet.errors import SettingError
from tercet.storage.extras import require
from tercet.storage.hub import commit_of, hub_errors, no_bars

HUB = "hub:"
"""What the name of a dataset begins with."""


@dataclass(frozen=True)
class HubName:
    """A split of a dataset: `hub:ID#CONFIG@SPLIT`."""

    id: str
    config: str | None = None
    split: str = "train"

    @classmethod
    def parse(cls, name: str) -> "HubName":
        """Return what a name stands for.

        Raises:
            SettingError: It is not written as such a name.
        """
        rest, at, split = name.removeprefix(HUB).partition("@")
        dataset, number_sign, config = rest.partition("#")
        if not dataset or (at and not split) or (number_sign and not config) or "#" in split:
            raise SettingError(f"{name}: is no name of a dataset. Write hub:ID, hub:ID#CONFIG or hub:ID#CONFIG@SPLIT.")
        return cls(dataset, config or None, split or "train")

    def __str__(self) -> str:
        return f"{HUB}{self.id}{f'#{self.config}' if self.config else ''}@{self.split}"


class HubRecords:
    """The records of one split.

    Args:
        name: Which split.
        revision: A branch, tag or commit; the newest where None.
        stream: Whether records come over the network while they are read.

    Raises:
        SettingError: The package `datasets` is not installed.
        InputError: The hub or the network did not give the dataset.
    """

    blocks: list[int] | None = None

    def __init__(self, name: HubName, *, revision: str | None = None, stream: bool = False) -> None:
        library = require("datasets", "hub")
        from huggingface_hub.constants import is_offline_mode

        self.name = name
        self.commit = revision if is_offline_mode() else commit_of(name.id, revision)
        with hub_errors(name.id, revision), no_bars():
            self._dataset: Any = library.load_dataset(
                name.id, name.config, split=name.split, revision=self.commit, streaming=stream
            )
            features = self._dataset.features
            first = None if features else next(iter(self._dataset), None)
        self.names: tuple[str, ...] | None = tuple(features or first or ()) or None
        self._labels = {
            column: feature.names
            for column, feature in (features or {}).items()
            if isinstance(feature, library.ClassLabel)
        }

    def use(self, columns: Collection[str]) -> None:
        """Read no other columns from now on."""
        if self._dataset.features is not None:
            self._dataset = self._dataset.select_columns([name for name in self.names or () if name in columns])

    def entries(self) -> Iterator[Entry]:
        """Yield what stands in the split, from its start."""
        return self.entries_from(0)

    def entries_from(self, place: int, *, line: int = 0) -> Iterator[Entry]:
        """Yield what stands in the split from a row on."""
        with hub_errors(self.name.id, self.commit):
            for number, record in enumerate(self._dataset.skip(place) if place else self._dataset, place):
                yield Entry(number + 1, number, self._with_names(record))

    def record_at(self, place: int) -> dict[str, Any]:
        """Return the record of a row; not for streams."""
        return self._with_names(self._dataset[place])

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def check_unchanged(self) -> None:
        """Do nothing: what was fetched stays as it is."""

    def _with_names(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record with the names of numbered labels."""
        for column, names in self._labels.items():
            label = record.get(column)
            if isinstance(label, int) and 0 <= label < len(names):
                record[column] = names[label]
        return record
