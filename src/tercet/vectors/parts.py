"""A folder of vectors: one Parquet file per shard, and beside them, in `.tercet`, what they were made from.

    000000.parquet ...       columns that were kept, `text`, `embedding`; one row group each
    .tercet/plan.json        everything that decides the bytes of the shards
    .tercet/inputs.jsonl     one line per input: what it is, and where each shard's rows begin
    .tercet/manifest.jsonl   one line per finished shard: where it is from, its counts, its hash
    .tercet/SHA256SUMS       written last: all is there

A shard has rows of one input only, and is a function of these rows, the encoder and the options. So it does not matter
who makes it, or when. Tools that read the folder as a table ignore `.tercet`, because its name begins with a dot.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tercet.data.rows.spans import Source, Span, Survey
from tercet.errors import OutputError
from tercet.storage.documents import parse_json
from tercet.storage.files import (
    append_to,
    atomic_write,
    is_temporary,
    make_folder,
    read_json,
    remove_temporaries,
    target_errors,
    write_json,
)
from tercet.storage.hashing import sha256_of_file
from tercet.storage.manifest import MANIFEST, write_hashes

ABOUT = ".tercet"
PLAN, INPUTS, MADE = "plan.json", "inputs.jsonl", "manifest.jsonl"

logger = logging.getLogger("tercet")


@dataclass(frozen=True, slots=True)
class Part:
    """A shard that is to be made."""

    number: int
    source: Source
    span: Span

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"{self.number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class Made:
    """A shard that is done: a line of the manifest."""

    file: str
    input: str
    first_row: int
    num_texts: int
    num_tokens: int
    num_truncated: int
    num_bytes: int
    sha256: str


def parts_of(surveys: Sequence[Survey]) -> Iterator[Part]:
    """Yield the shards of all inputs, numbered in their order."""
    number = 0
    for survey in surveys:
        for span in survey.spans:
            yield Part(number, survey.source, span)
            number += 1


def read_surveys(folder: Path) -> list[dict[str, Any]]:
    """Return what is known of the inputs of a folder from the last time; nothing where it cannot be read."""
    return _lines_of(folder / ABOUT / INPUTS)


def write_part(folder: Path, part: Part, table: Any, *, num_tokens: int, num_truncated: int) -> Made:
    """Write the file of a shard, and return its line of the manifest.

    Args:
        folder: Where to.
        part: Which shard it is.
        table: Its rows: columns that were kept, `text`, and those of the vectors.
        num_tokens: How many tokens were read.
        num_truncated: How many texts were cut.

    Raises:
        OutputError: It cannot be written; nothing is left half-written.
    """
    stream = io.BytesIO()
    _write_table(stream, table)
    content = stream.getbuffer()
    with atomic_write(folder / part.name) as file:
        file.write(content)
    digest = hashlib.sha256(content).hexdigest()
    num = (len(table), num_tokens, num_truncated, len(content))
    return Made(part.name, str(part.source), part.span.first, *num, digest)


def _write_table(stream: IO[bytes], table: Any) -> None:
    import pyarrow.parquet

    # vectors hardly get smaller, and cost most of the time of trying
    names = table.column_names
    compression = dict.fromkeys(names[: names.index("text") + 1], "zstd")
    with pyarrow.parquet.ParquetWriter(stream, table.schema, compression=compression, use_dictionary=False) as writer:
        writer.write_table(table, row_group_size=max(1, len(table)))


class VectorFolder:
    """The folder of vectors while one process fills it, or lets others fill it.

    Args:
        folder: Where it is.
        plan: Everything that decides what the shards hold, but the inputs.
        surveys: The inputs.

    Raises:
        OutputError: The folder cannot be made, or holds something else; nothing in it is touched then.
    """

    def __init__(self, folder: Path, *, plan: Mapping[str, Any], surveys: Sequence[Survey]) -> None:
        self.folder, self.surveys = folder, surveys
        self._about = folder / ABOUT
        self._made: dict[str, Made] = {}
        inputs = [{"sha256": survey.sha256, "column": survey.source.column} for survey in surveys]
        self._check(json.loads(json.dumps({**plan, "inputs": inputs})))
        remove_temporaries(folder)
        remove_temporaries(self._about)
        with atomic_write(self._about / INPUTS, "w") as stream:
            stream.writelines(_line(survey.to_dict()) for survey in surveys)
        for found in _lines_of(self._about / MADE):
            made = Made(**found)
            self._made[made.file] = made
        self._write_manifest()

    @property
    def num_parts(self) -> int:
        """How many shards there are in all."""
        return sum(len(survey.spans) for survey in self.surveys)

    @property
    def num_texts(self) -> int:
        """How many texts there are in all."""
        return sum(survey.num_texts for survey in self.surveys)

    def recorded(self, part: Part) -> Made | None:
        """Return the line of the manifest of a shard; None where it has none."""
        return self._made.get(part.name)

    def record(self, made: Made) -> None:
        """Add a shard to the manifest.

        Raises:
            OutputError: Its file is not here as it was written, or the manifest cannot be written.
        """
        file = self.folder / made.file
        if not file.exists() or file.stat().st_size != made.num_bytes:
            raise OutputError(
                f"{file}: was written by a worker, and is not here. Name a folder that all machines share as --out."
            )
        if self._made.get(made.file) == made:
            return
        with append_to(self._about / MADE) as stream:
            stream.write(_line(asdict(made)))
            stream.flush()
            os.fsync(stream.fileno())
        self._made[made.file] = made

    def finish(self) -> list[Made]:
        """Write the manifest in the order of the shards, and the hashes; return the lines of the manifest."""
        self._write_manifest()
        lines = [self._made[part.name] for part in parts_of(self.surveys)]
        own = {name: sha256_of_file(self._about / name) for name in (PLAN, INPUTS, MADE)}
        write_hashes(self._about, {**{f"../{made.file}": made.sha256 for made in lines}, **own})
        return lines

    def _write_manifest(self) -> None:
        """Write the lines of the shards in their order; a line that a kill has cut is gone then."""
        with target_errors(self._about):
            (self._about / MANIFEST).unlink(missing_ok=True)
        with atomic_write(self._about / MADE, "w") as stream:
            lines = (self._made.get(part.name) for part in parts_of(self.surveys))
            stream.writelines(_line(asdict(made)) for made in lines if made is not None)

    def _check(self, plan: dict[str, Any]) -> None:
        """Make the folder, or check that what is there was made by the same plan."""
        file = self._about / PLAN
        with target_errors(self.folder):
            others = [path.name for path in self.folder.iterdir()] if self.folder.exists() else []
        if any(not is_temporary(name) and name != ABOUT for name in others) and not file.exists():
            raise OutputError(f"{self.folder}: holds other files than vectors ({others[0]}). Name a new folder.")
        make_folder(self._about)
        if not file.exists():
            write_json(file, plan)
        elif (found := read_json(file, fix="Name another folder.", raised=OutputError)) != plan:
            what = [name for name in plan if not isinstance(found, dict) or found.get(name) != plan[name]]
            raise OutputError(
                f"{self.folder}: holds vectors of other inputs or settings ({', '.join(what) or 'more of them'}). "
                "Name another folder, or remove this one."
            )


def is_done(folder: Path, made: Made) -> bool:
    """Return whether a shard is as its line of the manifest says; a warning names one that is not."""
    file = folder / made.file
    try:
        if file.stat().st_size == made.num_bytes and sha256_of_file(file) == made.sha256:
            return True
        problem = "it is not as it was written"
    except FileNotFoundError:
        problem = "it is not there"
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
    logger.warning("%s: %s, so it is made again", file, problem)
    return False


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _lines_of(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSONL file of ours, but those that a kill has cut."""
    if not file.exists():
        return []
    found = []
    with target_errors(file), file.open("rb") as stream:
        for line in stream:
            try:
                found.append(parse_json(line, kind=dict))
            except ValueError:
                logger.warning("%s: a line is damaged, and left out", file)
    return found
