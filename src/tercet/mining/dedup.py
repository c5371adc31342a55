"""The verb `dedup`: texts without those that nearly repeat an earlier one."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tercet.data.rows.given import GivenTexts, open_given
from tercet.encoder.choice import Model, load_encoder
from tercet.errors import SettingError
from tercet.mining.duplicates import first_ones
from tercet.mining.vectors import vectors_of
from tercet.storage.choices import DEFAULT_MODEL, TextFormat
from tercet.storage.files import atomic_write, check_writable
from tercet.storage.progress import progress_bar


@dataclass(frozen=True)
class Group:
    """A text that was kept, and those that repeat it."""

    row: int
    """Which text it is, from 1."""

    text: str
    repeats: list[tuple[int, str, float]] = field(default_factory=list)
    """Row, text and cosine of each text that repeats it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the line of a JSONL file."""
        repeats = [{"row": row, "text": text, "score": round(score, 4)} for row, text, score in self.repeats]
        return {"row": self.row, "text": self.text, "repeats": repeats}


@dataclass(frozen=True)
class Deduplicated:
    """What was kept."""

    num_texts: int
    groups: list[Group]
    """Every text that was kept, in order."""

    @property
    def texts(self) -> list[str]:
        """The texts that were kept."""
        return [group.text for group in self.groups]

    def __repr__(self) -> str:
        return f"Deduplicated({len(self.groups):,} of {self.num_texts:,} texts kept)"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return {"num_texts": self.num_texts, "groups": [group.to_dict() for group in self.groups]}


def dedup(
    texts: "GivenTexts",
    *,
    out: str | Path | None = None,
    threshold: float = 0.9,
    model: "Model" = DEFAULT_MODEL,
    column: str | None = None,
    format: TextFormat | None = None,
    precision: str = "exact",
    progress: bool = False,
) -> Deduplicated:
    """Keep the first of texts that say nearly the same.

    In order, a text is kept where its cosine with every kept text before it is below the threshold; else it repeats
    the nearest of them.

    Args:
        texts: A list of texts, or a file with one text per row.
        out: Where to: `.jsonl` has `row`, `text` and `repeats` of each text that is kept; any other ending, the texts.
        threshold: From which cosine on a text repeats another one.
        model: An encoder by its name, its settings, or an Encoder.
        column: Which column of a file holds the text.
        format: How a file is written, where its ending does not tell.
        precision: How texts are embedded; see `embed`.
        progress: Whether bars are shown.

    Raises:
        SettingError: The threshold is no cosine.
        InputError: The texts cannot be read.
    """
    if not -1 < threshold <= 1:
        raise SettingError(f"threshold {threshold}: is no cosine. Give one between 0 and 1, such as 0.9.")
    target = None if out is None else Path(out)
    if target is not None:
        check_writable(target)
    with open_given(texts, column=column, file_format=format) as given:
        vectors = vectors_of(given, load_encoder(model), precision=precision, progress=progress)
        with progress_bar("looking for duplicates", total=len(vectors), unit="texts", enabled=progress) as advance:
            leaders, scores = first_ones(vectors, threshold=threshold, advance=advance)
        found: dict[int, Group] = {}
        for i, (text, leader, score) in enumerate(zip(given, leaders.tolist(), scores.tolist(), strict=True)):
            if leader == i:
                found[i] = Group(i + 1, text)
            else:
                found[leader].repeats.append((i + 1, text, float(np.clip(score, -1, 1))))
    groups = list(found.values())
    if target is not None:
        with atomic_write(target, "w") as stream:
            for group in groups:
                is_json = target.suffix.lower() == ".jsonl"
                line = json.dumps(group.to_dict(), ensure_ascii=False) if is_json else group.text
                stream.write(line + "\n")
    return Deduplicated(len(vectors), groups)
