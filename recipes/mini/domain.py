"""A domain to adapt to: descriptions of Debian packages, which `mini` never saw.

    python recipes/mini/domain.py OUT

Reads `TERCET_DATA/train/debian_title_body.tsv` and writes to the folder OUT:

- `rerank.tsv`: 1,000 titles, each with its own description (label 1) and 49 others of these 1,000 (label 0);
- `sentences.txt`: 2,000 other descriptions of 8 to 30 words, to adapt to;
- `random.tsv`: the same 2,000, each beside another one, drawn: pairs that mean nothing;
- `pairs.tsv`: the same 2,000, each beside its own title: what labels would give.

The parts are chosen by a hash of the description, and share none; titles in `rerank.tsv` are in no other file.
"""

import argparse
import hashlib
import os
from pathlib import Path

import numpy as np

from tercet.rows.kinds import Triplet
from tercet.rows.sources import open_rows
from tercet.rows.words import as_words

NUM_QUERIES, NUM_CANDIDATES, NUM_SENTENCES = 1_000, 50, 2_000


def read(path: Path) -> list[tuple[str, str]]:
    """Return titles and descriptions in the order of a hash, each title and each description once, by its words."""
    rows = [row for row in open_rows(path, kind="triplets") if isinstance(row, Triplet)]
    rows.sort(key=lambda row: (hashlib.blake2b(row.positive.encode()).digest(), row.anchor))
    titles, bodies, found = set[str](), set[str](), []
    for row in rows:
        title, body = as_words(row.anchor), as_words(row.positive)
        if title not in titles and body not in bodies:
            titles.add(title)
            bodies.add(body)
            found.append((row.anchor, row.positive))
    return found


def write(path: Path, *lines: tuple[str, ...]) -> None:
    """Write lines of columns."""
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="where the files are written")
    out: Path = parser.parse_args().out
    if "TERCET_DATA" not in os.environ:
        parser.error("TERCET_DATA: is not set. Name the folder with the data.")
    pairs = read(Path(os.environ["TERCET_DATA"]) / "train" / "debian_title_body.tsv")
    held_out, others = pairs[:NUM_QUERIES], pairs[NUM_QUERIES:]
    chosen = [(title, body) for title, body in others if 8 <= len(body.split()) <= 30][:NUM_SENTENCES]
    draw = np.random.default_rng(0)
    ranked = []
    for number, (title, body) in enumerate(held_out):
        places = draw.choice(NUM_QUERIES - 1, NUM_CANDIDATES - 1, replace=False)
        ranked.append((title, body, "1"))
        ranked += [(title, held_out[place + (place >= number)][1], "0") for place in places]
    order = draw.permutation(len(chosen))
    beside = dict(zip(order, np.roll(order, 1), strict=True))  # a ring, so that nothing stands beside itself
    out.mkdir(parents=True, exist_ok=True)
    write(out / "rerank.tsv", ("query", "candidate", "label"), *ranked)
    write(out / "sentences.txt", *((body,) for _, body in chosen))
    write(
        out / "random.tsv",
        ("anchor", "positive"),
        *((body, chosen[beside[i]][1]) for i, (_, body) in enumerate(chosen)),
    )
    write(out / "pairs.tsv", ("anchor", "positive"), *chosen)


if __name__ == "__main__":
    main()
