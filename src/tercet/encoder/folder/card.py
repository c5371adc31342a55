"""The model card of a saved encoder: what it is and how to load it; who trained it adds how, and its scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path

CARD = "README.md"
"""Where a folder has its card. It is not among the folder's hashes, so that anybody may edit it."""

_HEAD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, feature-extraction, tercet]
---
"""

_USE = """## Use

```python
from tercet import Encoder

encoder = Encoder.load("PATH_OR_HUB_ID")
vectors = encoder.embed(["A man plays a guitar.", "Somebody makes music."])
```

or on the command line:

```sh
tercet embed sentences.txt --model PATH_OR_HUB_ID --out vectors.npy
```

or in sentence-transformers{needs}:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH_OR_HUB_ID"{trust})
```
"""


def card_of(facts: Mapping[str, str], *, is_foreign: bool) -> str:
    """Return the card of an encoder.

    Args:
        facts: What it is, as rows of a table.
        is_foreign: Whether sentence-transformers needs Tercet to load it.
    """
    rows = "".join(f"| {name} | {_cell(value)} |\n" for name, value in facts.items() if value)
    needs, trust = (" (with Tercet installed)", ", trust_remote_code=True") if is_foreign else ("", "")
    use = _USE.format(needs=needs, trust=trust)
    return f"{_HEAD}\n# A sentence encoder\n\n| | |\n|---|---|\n{rows}\n{use}"


def public_name(name: str | None) -> str:
    """Return a model's or file's name without the folders of this machine that it is in."""
    if name is None:
        return ""
    is_path = name.startswith((".", "/", "~")) or "\\" in name or Path(name).exists()
    return Path(name).name if is_path else name


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table of Markdown."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
