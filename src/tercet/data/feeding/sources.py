"""Training rows: sources opened and checked from end to end, described, mixed, and given out in batches."""

import hashlib
import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tercet.data.feeding.batches import Batches
from tercet.data.feeding.mixing import mix
from tercet.data.feeding.stores import Feed, IndexedRows, PremiseRows, Records, Store, StoreFeed, StreamFeed, no_rows
from tercet.data.reading.aligned import AlignedFiles
from tercet.data.reading.datasets import HubName, HubRecords
from tercet.data.reading.formats import format_in, open_file
from tercet.data.rows.clean import Cleaner
from tercet.data.rows.columns import GIVES, GROUPED, RowKind, UnknownColumns
from tercet.data.rows.gate import Gate, Reject, RejectFile
from tercet.data.rows.kinds import NliPair, Row
from tercet.data.rows.nli import Premises
from tercet.data.rows.records import RecordReader
from tercet.data.rows.settings import RowSettings as RowSettings
from tercet.data.rows.settings import SourceSettings as SourceSettings
from tercet.data.rows.words import texts_below
from tercet.errors import RowError, SettingError
from tercet.storage.hashing import sha256_of_file, sha256_of_json
from tercet.storage.progress import Advance, progress_bar

logger = logging.getLogger("tercet")

_LARGE = 2**27
"""A file of more bytes has a bar while it is read."""

_BLOCK = 10_000
"""How many rows a bar moves on by."""

_ORDER = 0  # draws of sources, apart from those of mixing

_HASHED_AS = {"nli": "labelled", "inference": "nli", "texts": "triplets"}
"""What hashes call kinds of rows that had other names: positions and candidates of earlier runs stay good."""


def open_rows(sources: Any, *, kind: RowKind, rank: int = 0, progress: bool = False) -> "Rows":
    """Open sources of rows: everything but streams is read once, checked and counted.

    Args:
        sources: RowSettings, or what they are made from: a path, a list of paths, mappings as in a recipe.
        kind: What rows are wanted.
        rank: The number of this process; the first one writes the reject file.
        progress: Whether a bar is shown while a large source is read.

    Raises:
        SettingError: A setting is unknown or does not fit.
        InputError: A source cannot be read, has no rows, or too many bad ones.
        RowError: A row is bad, and bad rows are not to be skipped; the message says file:line.
    """
    settings = RowSettings.of(sources)
    writes = settings.on_error == "skip" and rank == 0
    streamed = [str(HubName.parse(source.path)) for source in settings.sources if source.stream]
    rejects = RejectFile(settings.rejects if writes else None, streamed=streamed)
    if settings.clean is not None and kind != "parallel":
        raise SettingError(f"rows.clean: is for parallel pairs, and here {kind} are wanted. Leave it out.")
    clean = Cleaner(settings.clean) if settings.clean else None
    known = texts_below(*settings.leaks)
    with rejects.writing() as reject:
        opened = [
            _open(source, kind, settings, reject, clean, known, progress and rank == 0) for source in settings.sources
        ]
    for source in opened:
        source.gate.check_fraction()
        by_rule = ", ".join(f"{rule} {num:,}" for rule, num in source.gate.left_out.items())
        if source.store is not None and not len(source.store):
            raise no_rows(source.gate.name, by_rule)
        num_bad = source.gate.counts["num_bad"]
        if num_bad and rank == 0:
            told = f", see {settings.rejects}" if settings.rejects else ""
            logger.warning("%s: %s bad rows were left out%s.", source.gate.name, f"{num_bad:,}", told)
        if by_rule and rank == 0:
            logger.warning("%s: rows were left out by rules: %s.", source.gate.name, by_rule)
    return Rows(opened, settings, kind=kind, rejects=rejects)


@dataclass
class Source:
    """A source that is open."""

    settings: SourceSettings
    records: Records
    gate: Gate
    origin: dict[str, Any]
    """Its format or revision, and the hashes of what it holds and of the evaluation texts that it must not hold."""

    store: Store | None = None
    """Its rows; None for a stream."""

    @property
    def num_rows(self) -> int | None:
        """How many rows it has; None for a stream."""
        return None if self.store is None else len(self.store)

    def describe(self) -> dict[str, Any]:
        """Return what it is, what was found in it, and what was chosen about it."""
        reader = self.gate.reader
        chosen = {"translations", "weight", "share", "labels", "nli_negatives", "nli_pairs"}
        chosen &= self.settings.model_fields_set
        return {
            "path": self.settings.path,
            **self.origin,
            "kind": reader.kind,
            "columns": {field: [*columns] for field, columns in reader.columns.items()},
            **self.settings.model_dump(include=chosen),
            **self.gate.counts,
        }

    def identity(self) -> dict[str, Any]:
        """Return all that its rows depend on; what was read as a whole is its content, wherever that came from."""
        if self.store is None:
            return {**self._hashed_settings(), **self.origin}
        settings = self._hashed_settings(exclude={"path", "translations", "revision"})
        hashes = {name: value for name, value in self.origin.items() if name in ("sha256", "leaks")}
        return {**settings, **hashes, "num_rows": self.num_rows}

    def _hashed_settings(self, *, exclude: set[str] | None = None) -> dict[str, Any]:
        """Return the settings as hashes know them: there NLI files still have their earlier name."""
        settings = self.settings.model_dump(exclude=exclude)
        return {**settings, "kind": "labelled" if self.settings.kind == "nli" else self.settings.kind}


class Rows:
    """Training rows that can be started again anywhere. Made by `open_rows`. Iterating gives them as they stand."""

    def __init__(self, sources: list[Source], settings: RowSettings, *, kind: RowKind, rejects: RejectFile) -> None:
        self._sources, self._settings = sources, settings
        self._kind = kind
        self._rejects = rejects
        nums = [source.num_rows for source in sources]
        self.num_rows = None if None in nums else sum(num or 0 for num in nums)
        """How many rows there are; None where one source is a stream."""

    def __iter__(self) -> Iterator[Row]:
        for source in self._sources:
            if source.store is not None:
                yield from map(source.store.row, range(len(source.store)))
            else:
                for _, rows in source.gate.rows(source.records.entries(), self._rejects.append):
                    yield from rows

    def apart(self) -> "list[Rows]":
        """Return the rows of each source by themselves."""
        return [Rows([source], self._settings, kind=self._kind, rejects=self._rejects) for source in self._sources]

    def describe(self) -> dict[str, Any]:
        """Return what the rows are, as JSON: sources, hashes and counts; of a stream the counts so far."""
        return {
            "kind": self._kind,
            "num_rows": self.num_rows,
            "sha256": self._identity(),
            "mixing": self._settings.mixing,
            "shuffle": self._settings.shuffle,
            "no_duplicates": self._settings.no_duplicates,
            "sources": [source.describe() for source in self._sources],
        }

    def batches(
        self,
        *,
        batch: int,
        seed: int,
        epochs: int | None,
        state: Mapping[str, Any] | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> Batches:
        """Return batches from the start, or from where a state was taken.

        Without weights an epoch has every row once, with weights as many rows as there are, in those shares. The last
        batch of an epoch is left out where it would be smaller than the others. The order is the same for any `world`.

        Args:
            batch: How many rows a batch has, over all processes.
            seed: What orders are drawn from.
            epochs: When to end; None for never.
            state: What `Batches.state` returned after the last batch that was used.
            rank: The number of this process.
            world: How many processes there are; each gets its part of every batch.

        Raises:
            SettingError: A number is of no use, or a stream is to have epochs.
            InputError: The state is of other rows or settings.
        """
        if batch < 1 or seed < 0 or world < 1 or not 0 <= rank < world or (epochs is not None and epochs < 1):
            raise SettingError(
                f"batch {batch}, seed {seed}, epochs {epochs}, rank {rank} of {world}: do not fit. "
                "A batch and epochs are at least 1, a seed at least 0, a rank less than the number of processes."
            )
        if batch % world:
            raise SettingError(f"batch {batch}: cannot be parted among {world} processes. Give a multiple of {world}.")
        if self.num_rows is None and epochs is not None:
            raise SettingError(f"epochs {epochs}: a streamed dataset has none. Give steps, or set stream: false.")
        weights = [source.settings.weight for source in self._sources if source.settings.weight is not None]
        mixture = mix(
            [source.num_rows for source in self._sources],
            weights=weights or None,
            batch=batch,
            one_source_per_batch=self._settings.mixing == "one_source_per_batch",
        )
        return Batches(
            [self._feed(number, source, seed) for number, source in enumerate(self._sources)],
            mixture,
            seed=seed,
            shuffle=self._settings.shuffle,
            no_duplicates=self._settings.no_duplicates,
            epochs=epochs,
            identity={"rows": self._identity(), "batch": batch},
            state=state,
            rank=rank,
            world=world,
        )

    def _feed(self, number: int, source: Source, seed: int) -> Feed:
        draws, settings = [seed, _ORDER, number], self._settings
        if source.store is not None:
            return StoreFeed(source.store, seed=draws, shuffle=settings.shuffle)
        return StreamFeed(
            source.records,
            source.gate,
            self._rejects,
            seed=draws,
            shuffle=settings.shuffle,
            buffer=settings.shuffle_buffer,
        )

    def _identity(self) -> str:
        """Return a hash of all that the rows and their order depend on, besides the seed."""
        settings = self._settings.model_dump(include={"mixing", "shuffle", "shuffle_buffer", "no_duplicates", "clean"})
        return sha256_of_json(
            {
                "kind": _HASHED_AS.get(self._kind, self._kind),
                **settings,
                "sources": [source.identity() for source in self._sources],
            }
        )


def _open(
    own: SourceSettings,
    wanted: RowKind,
    settings: RowSettings,
    reject: Callable[[Reject], None],
    clean: Cleaner | None,
    known: Set[str],
    progress: bool,
) -> Source:
    if own.kind is not None and own.kind not in GIVES[wanted]:
        raise SettingError(f"{own.path}: kind {own.kind!r} gives no {wanted}. These do: {', '.join(GIVES[wanted])}.")
    columns = own.columns if isinstance(own.columns, dict) else None
    reader = RecordReader(wanted, kind=own.kind, columns=columns, labels=own.labels)
    name, records, origin = _records(own)
    origin |= {"leaks": sha256_of_json(sorted(known))} if known else {}
    source = Source(own, records, Gate(name, reader, settings, share=own.share, clean=clean, known=known), origin)
    _choose_columns(source)
    if not own.stream:
        with progress_bar(f"reading {name}", total=None, unit="rows", enabled=progress and _is_large(own)) as advance:
            _read(source, wanted, reject, advance)
    elif wanted == "triplets" and reader.kind in GROUPED:
        raise SettingError(f"{own.path}: grouping by premise needs all pairs at once. Set stream: false.")
    return source


def _records(own: SourceSettings) -> tuple[str, Records, dict[str, Any]]:
    """Return what messages call a source, its records, and its format or revision."""
    if own.is_hub:
        name = HubName.parse(own.path)
        dataset = HubRecords(name, revision=own.revision, stream=own.stream)
        return str(name), dataset, {"revision": dataset.commit}
    if own.translations is not None:
        return own.path, AlignedFiles(Path(own.path), Path(own.translations)), {"format": "aligned"}
    file_format = _format(own)
    names = own.columns if isinstance(own.columns, list) else None
    return own.path, open_file(Path(own.path), file_format, names=names), {"format": file_format}


def _format(own: SourceSettings) -> str:
    file_format = own.format or format_in(Path(own.path))
    if isinstance(own.columns, list) and file_format not in ("csv", "tsv"):
        raise SettingError(f"{own.path}: a list of columns is for CSV and TSV without a header. Name fields: {{...}}.")
    return file_format


def _choose_columns(source: Source) -> None:
    """Leave columns unread that are of no use, where their names are known before all is read."""
    names, reader = source.records.names, source.gate.reader
    if names is None:
        return
    try:
        found = reader.bind(names)
    except UnknownColumns as error:
        raise RowError(f"{source.gate.name}:1: {error}") from error
    columns = {column for columns in found.values() for column in columns}
    source.records.use({name for name in names if name in {column.split(".")[0] for column in columns} | columns})


def _is_large(own: SourceSettings) -> bool:
    return own.is_hub or Path(own.path).stat().st_size > _LARGE


def _read(source: Source, wanted: RowKind, reject: Callable[[Reject], None], advance: Advance) -> None:
    """Check all rows of a source, and keep what is needed to read them again."""
    premises = Premises(num_negatives=source.settings.nli_negatives, pairs=source.settings.nli_pairs)
    places, digest = array("q"), hashlib.sha256()
    for number, (entry, rows) in enumerate(source.gate.rows(source.records.entries(), reject), 1):
        if number % _BLOCK == 0:
            advance(_BLOCK)
        if source.settings.is_hub:
            digest.update(repr(rows).encode())
        if wanted == "triplets" and isinstance(rows[0], NliPair):
            premises.add(rows[0])
        else:
            places.extend([entry.place] * len(rows))
    source.records.check_unchanged()
    own = source.settings
    if not own.is_hub:
        hashes = [sha256_of_file(Path(path)) for path in (own.path, own.translations) if path]
        source.origin["sha256"] = hashes[0] if len(hashes) == 1 else sha256_of_json(hashes)
    else:
        source.origin["sha256"] = digest.hexdigest()
    counts = source.gate.counts
    if wanted == "triplets" and source.gate.reader.kind in GROUPED:
        counts["num_labelled"] = counts["num_rows"]
        counts.update(premises.finish())
        source.store = PremiseRows(premises)
    else:
        source.store = IndexedRows(source.gate.name, source.records, source.gate.reader, places)
