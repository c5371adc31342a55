"""What several strategies made of the same sentences, side by side."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tercet.data.reading.formats import read_records
from tercet.storage.texts import several
from tercet.synthesis.corpus import TRIPLETS, read_audit

_LOOKED_AT = 10_000  # accepted triplets of the first folder that are looked for in the others


@dataclass(frozen=True)
class Example:
    """A sentence, and what each folder has for it."""

    anchor: str
    found: dict[str, list[tuple[str, str | None]]] = field(default_factory=dict)
    """Entailments and contradictions by the folder's name, or its path where two have one name; an empty list where
    nothing was accepted."""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self)


def compare(synthesized: Sequence[str | Path], *, num: int = 5, num_samples: int = 2) -> list[Example]:
    """Return sentences with what each folder accepted for them; those that most folders have come first.

    Args:
        synthesized: Folders that `synthesize` wrote.
        num: How many sentences.
        num_samples: The most triplets of each, from each folder.

    Raises:
        InputError: A folder holds no triplets.
    """
    folders = [Path(folder) for folder in several(synthesized)]
    short = Counter(folder.name for folder in dict.fromkeys(folders))
    names = {
        folder: f"{folder.name if short[folder.name] == 1 else folder} ({read_audit(folder)['strategy']})"
        for folder in folders
    }
    firsts = itertools.islice(_triplets(folders[0]), _LOOKED_AT)
    examples = {row["anchor"]: Example(row["anchor"], {name: [] for name in names.values()}) for row in firsts}
    for folder, name in names.items():
        for row in _triplets(folder):
            example = examples.get(row["anchor"])
            if example is not None and len(example.found[name]) < num_samples:
                example.found[name].append((row["positive"], row.get("negative")))
    order = sorted(examples.values(), key=lambda example: -sum(map(bool, example.found.values())))
    return order[:num]


def _triplets(folder: Path) -> Iterator[dict[str, Any]]:
    for _, record in read_records(folder / TRIPLETS):
        yield record
