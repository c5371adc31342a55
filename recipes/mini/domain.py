"""A domain to adapt to that `mini` never saw: the help of an office suite, or descriptions of Debian packages.

    python recipes/mini/domain.py OUT --of help        # needs apt-get
    python recipes/mini/domain.py OUT --of packages    # needs TERCET_DATA

Reads the headings in Debian's libreoffice-help-en-us and the paragraphs behind them, or the titles and descriptions in
`TERCET_DATA/train/debian_title_body.tsv`, and writes to the folder OUT:

- `rerank.tsv`: 1,000 titles, each with its own description (label 1) and 49 others of these 1,000 (label 0);
- `sentences.txt`: 2,000 other descriptions of 8 to 30 words, to adapt to;
- `random.tsv`: the same 2,000, each beside another one, drawn: pairs that mean nothing;
- `pairs.tsv`: the same 2,000, each beside its own title: what labels would give.

The parts are chosen by a hash of the description, and share none; titles in `rerank.tsv` are in no other file.
"""

import argparse
import hashlib
import html
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tercet.data.feeding.sources import open_rows
from tercet.data.rows.kinds import Triplet
from tercet.data.rows.words import as_words

HELP = "libreoffice-help-en-us"
NUM_QUERIES, NUM_CANDIDATES, NUM_SENTENCES = 1_000, 50, 2_000


def packages() -> list[tuple[str, str]]:
    """Return titles and descriptions of packages."""
    path = Path(os.environ["TERCET_DATA"]) / "train" / "debian_title_body.tsv"
    return [(row.anchor, row.positive) for row in open_rows(path, kind="triplets") if isinstance(row, Triplet)]


def help_pages() -> list[tuple[str, str]]:
    """Return headings of two words or more, and the paragraphs behind them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["apt-get", "download", "-q", HELP], cwd=folder, check=True, capture_output=True)
        (package,) = folder.glob("*.deb")
        subprocess.run(["dpkg", "-x", package, folder / "files"], check=True)
        pages = [path.read_text() for path in sorted((folder / "files").rglob("*.html"))]
    behind = re.compile(r"<h[1-6][^>]*>((?:(?!</h).)*)</h[1-6]>\s*<p[^>]*>(.*?)</p>", re.S)
    found = [pair for page in pages for pair in behind.findall(page)]
    pairs = [tuple(" ".join(html.unescape(re.sub("<[^>]*>", "", part)).split()) for part in pair) for pair in found]
    return [(title, body) for title, body in pairs if len(title.split()) >= 2]


def in_order(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return titles and texts in the order of a hash, each title and each text once, by its words."""
    titles, bodies, found = set[str](), set[str](), []
    for title, body in sorted(pairs, key=lambda pair: (hashlib.blake2b(pair[1].encode()).digest(), pair[0])):
        if as_words(title) not in titles and as_words(body) not in bodies and min(len(title), len(body)) > 0:
            titles.add(as_words(title))
            bodies.add(as_words(body))
            found.append((title, body))
    return found


def write(path: Path, *lines: tuple[str, ...]) -> None:
    """Write lines of columns."""
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="where the files are written")
    parser.add_argument("--of", choices=["help", "packages"], required=True, help="what the texts are about")
    options = parser.parse_args()
    out: Path = options.out
    if options.of == "packages" and "TERCET_DATA" not in os.environ:
        parser.error("TERCET_DATA: is not set. Name the folder with the data.")
    pairs = in_order(help_pages() if options.of == "help" else packages())
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
