"""Candidates: triplets with the discriminator's probabilities, before anything is filtered."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tercet.data.reading.formats import read_records
from tercet.storage.files import atomic_write


class Candidate(NamedTuple):
    """What was made from a sentence: a triplet, or a title (the anchor) and its text (the positive)."""

    sentence: int
    """The number of the sentence, from 0."""
    sample: int
    """Which of its candidates."""
    anchor: str
    positive: str
    negative: str | None
    """None where the strategy makes none."""
    positive_true: float | None
    """The probability that the sentence means the positive; None where that is empty."""
    negative_true: float | None
    """The probability that the sentence means the negative."""
    rank: int | None = None
    """Of a title: the place of its text among others that are looked for by it, from 1."""

    def hypotheses(self) -> list[str]:
        """Return the positive, and the negative where there is one."""
        return [self.positive] if self.negative is None else [self.positive, self.negative]


def write_candidates(path: Path, candidates: Sequence[Candidate]) -> None:
    """Write candidates as a Parquet file, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet

    types = [pa.int64(), pa.int32(), pa.string(), pa.string(), pa.string(), pa.float32(), pa.float32(), pa.int32()]
    schema = pa.schema(list(zip(Candidate._fields, types, strict=True)))
    table = pa.Table.from_pylist([candidate._asdict() for candidate in candidates], schema=schema)
    with atomic_write(path) as stream:
        pyarrow.parquet.write_table(table, stream, compression="zstd")


def read_candidates(path: Path) -> Iterator[Candidate]:
    """Yield the candidates in a file.

    Raises:
        InputError: It cannot be read.
    """
    for _, record in read_records(path):
        yield Candidate(**record)


def as_line(candidate: Candidate) -> bytes:
    """Return an accepted candidate as a line of JSON that `tercet.data.rows` reads."""
    fields: dict[str, Any] = {
        name: value
        for name, value in candidate._asdict().items()
        if value is not None and name not in ("sentence", "sample")
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
