"""Make the triplets that `mini-synth.yaml` begins with: two captions of one picture, and one of another picture.

    python recipes/models/scenes.py FOLDER    # some minutes

Reads `TERCET_DATA/train/captions.jsonl` and writes FOLDER/scenes.tsv: a caption, another one of the same picture, and
one of another picture, mostly one that shares many words with the first. Needs `pip install 'tercet[synthesis]'`.
"""

import argparse
import json
import os
import random
from pathlib import Path

import bm25s

NUM_NEAR = 10  # the other caption is one of the nearest so many
SHARE_NEAR = 0.7  # how often; else it is any caption
PAIRS_PER_PICTURE = 2


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the file is written")
    out: Path = parser.parse_args().out
    if "TERCET_DATA" not in os.environ:
        parser.error("TERCET_DATA: is not set. Name the folder with the data.")
    chance = random.Random(0)
    with (Path(os.environ["TERCET_DATA"]) / "train" / "captions.jsonl").open(encoding="utf-8") as stream:
        pictures = [json.loads(line)["same_image"] for line in stream]
    texts = [(caption, number) for number, picture in enumerate(pictures) for caption in picture]
    index = bm25s.BM25()
    index.index(_words([text for text, _ in texts]), show_progress=False)
    pairs = [
        (number, *chance.sample(picture, 2))
        for number, picture in enumerate(pictures)
        for _ in range(PAIRS_PER_PICTURE)
        if len(picture) > 1
    ]
    found, _ = index.retrieve(_words([anchor for _, anchor, _ in pairs]), k=NUM_NEAR + 5, show_progress=False)
    lines = ["anchor\tpositive\tnegative\n"]
    for (number, anchor, positive), places in zip(pairs, found, strict=True):
        near = [texts[place][0] for place in places if texts[place][1] != number][:NUM_NEAR]
        other = chance.choice(near if near and chance.random() < SHARE_NEAR else chance.choice(pictures))
        lines.append(f"{anchor}\t{positive}\t{other}\n")
    out.mkdir(parents=True, exist_ok=True)
    (out / "scenes.tsv").write_text("".join(lines), encoding="utf-8")


def _words(texts: list[str]) -> list[list[str]]:
    found: list[list[str]] = bm25s.tokenize(texts, stopwords="en", show_progress=False, return_ids=False)
    return found


if __name__ == "__main__":
    main()
