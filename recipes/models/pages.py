"""Make titles and paragraphs out of documentation: rows that recipes learn from, and search tasks to choose models by.

    python recipes/models/pages.py train FOLDER --dev DEV --leaks EVAL    # some minutes; needs apt-get and TERCET_DATA
    python recipes/models/pages.py dev DEV

`dev` writes three search tasks for `tercet evaluate --tasks rerank:FILE`: DEV/help.tsv (the help of LibreOffice),
DEV/packages.tsv (descriptions of Debian packages) and DEV/python.tsv (Python's documentation). Each has up to 1,000
titles; each title comes with its own paragraph (label 1) and 49 others (label 0). DEV/search.tsv has all three, and
DEV/keep-out.txt the texts of these domains that no training file may have.

`train` writes FOLDER/sections.tsv (title, first paragraph), FOLDER/paragraphs.txt (later paragraphs), both from the
packages in DOCUMENTATION and the dictionary FOLDOC, FOLDER/packages.tsv (Debian packages that are not in the dev
task), and FOLDER/licences.tsv. No text stands in a file below EVAL or in the dev tasks, and none names a product in
KEPT_OUT.
"""

import argparse
import gzip
import hashlib
import html
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import py3langid

from tercet.data.rows.words import as_words, is_looked_for, texts_below

DOCUMENTATION = """
linux-doc-6.1 git-doc gnome-user-docs debian-handbook debian-reference-en debian-policy developers-reference
debian-faq bash-doc cmake-doc kicad-doc-en haproxy-doc bind9-doc python-django-doc neutron-doc nova-doc keystone-doc
aptitude-doc-en wireshark-doc maint-guide apt-doc nodejs-doc erlang-doc rust-doc bacula-doc icinga2-doc xen-doc
libvirt-doc gnumeric-doc frr-doc debian-kernel-handbook python-pandas-doc racket-doc csound-doc fish-common
gimp-help-en grass-doc python-celery-doc python-flask-doc python-jinja2-doc python-requests-doc python-sqlalchemy-doc
python-scrapy-doc python-tornado-doc python-aiohttp-doc python-click-doc python-pytest-doc python-cryptography-doc
python-sklearn-doc python-scipy-doc python-sympy-doc python-astropy-doc python-xarray-doc python-dask-doc
python-statsmodels-doc python-skimage-doc python-nibabel-doc python-pil-doc python-lxml-doc python-psutil-doc
python-werkzeug-doc python-ipython-doc python-notebook-doc python-hypothesis-doc python-gevent-doc python-kombu-doc
python-pygame-doc python-biopython-doc cinder-doc glance-doc heat-doc horizon-doc swift-doc ironic-doc manila-doc
munin-doc ntp-doc docker-doc libstdc++-12-doc llvm-19-doc ns3-doc povray-doc renpy-doc maxima-doc imagemagick-6-doc
ghostscript-doc lighttpd-doc borgbackup-doc rsyslog-doc kea-doc knot-doc unbound strongswan mailman3-doc scilab-doc
python-certbot-doc python-ezdxf-doc python-mock-doc python-apt-doc python-attr-doc python-babel-doc python-bottle-doc
python-bs4-doc python-can-doc python-coverage-doc python-django-allauth-doc python-djangorestframework-doc
python-elasticsearch-doc python-eventlet-doc python-h5py-doc python-markdown-doc python-mpi4py-doc
python-openstackclient-doc python-openstacksdk-doc python-oslo.config-doc python-pexpect-doc python-pyqtgraph-doc
python-quart-doc python-rdflib-doc python-selenium-doc python-setuptools-doc sphinx-doc python-structlog-doc
python-traitlets-doc python-urwid-doc python-whoosh-doc python-wtforms-doc designate-doc barbican-doc octavia-doc
glances-doc puppetdb-doc courier-doc sendmail-doc ntpsec-doc aodh-doc ceilometer-doc senlin-doc murano-doc trove-doc
debmake-doc autoconf-doc qtbase5-doc-html qtdeclarative5-doc-html qtmultimedia5-doc-html qtcreator-doc awesome-doc
i3-wm calibre-bin mercurial-common dovecot-core fvwm3 gnuplot-doc graphviz-doc freecad-python3 stellarium-data
libcurl4-doc libxml2-doc zlib1g-dev libgtk-3-doc libglib2.0-doc libgtk-4-doc openocd openscad vlc-data audacity-data
ardour-data musescore-common inkscape-tutorials evolution-common evince-common gedit-common nautilus-data
brasero-common cheese-common eog file-roller gnome-terminal-data gnome-calculator gnome-chess gnome-disk-utility
gucharmap orca rhythmbox-data seahorse simple-scan totem-common gthumb-data kdoctools5 kate5-data konsole-kpart
dolphin kmail kontact korganizer okular gwenview kdenlive-data krusader kstars-data kmymoney-common marble-data
umbrello ktorrent-data
""".split()
"""Debian packages with documentation in HTML or in GNOME's help format; a package that is gone is left out."""

FOLDOC = "dict-foldoc"
HELP, PYTHON = "libreoffice-help-en-us", "python3.11-doc"

KEPT_OUT = re.compile(
    r"(?i:\b(?:apache|httpd|x?emacs|elisp|elpa|exim4?|gnupg2?|gpg2?|openpgp|mariadb|mysql\w*|nginx|octave|openldap|slapd|perl5?|cpan|"
    r"postfix|postgres\w*|psql|pgsql|ruby\w*|rubygems?|samba|smbd|nmbd|winbind|sqlite\w*|subversion|svn|svnadmin|g?vim|vimscript|zsh|cran)\b)"
    r"|\bGNU R\b|\bR (?:package|language|library|function|script|interface|statistical)|\b(?:in|for|the|using|with) R\b"
)
"""Products whose documentation serves held-out tests: no text here names one."""

NUM_QUERIES, NUM_CANDIDATES = 1_000, 50
FEWEST_WORDS, MOST_WORDS = 6, 90
MOST_SECTIONS, MOST_PARAGRAPHS = 1_500, 1_500
"""How many a package gives at most, so that none prevails."""

_PART = re.compile(
    r"<(?P<title>h[1-6]|title)\b[^>]*>(?P<heading>.*?)</(?P=title)>|<(?P<tag>p|para)\b[^>]*>(?P<text>.*?)(?=</(?P=tag)>|<p\b|<h[1-6]\b|<pre\b|<ul\b|<ol\b|<dl\b)",
    re.S | re.I,
)
_UNREAD = re.compile(r"<!--.*?-->|<(script|style|nav|head|footer)\b.*?</\1>", re.S | re.I)
_NUMBER = re.compile(r"^(?:(?:chapter|appendix|section|part)\s+)?(?:[A-Z]|[IVX]+|\d+)?(?:\.?\d+)*\.?\s+(?=\w)", re.I)
_FURNITURE = re.compile(
    r"(?i)^(table of contents|contents|navigation|previous topic|next topic|this page|quick search|related topics|"
    r"see also|project versions|copyright.*|index|search.*|legal notice|about this document)$"
)


def fetched(package: str, cache: Path) -> Path | None:
    """Return the folder with a Debian package's files; None where the package is not to be had."""
    folder = cache / package
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        for old in cache.glob(f"{package}_*.deb"):
            old.unlink()
        if subprocess.run(["apt-get", "download", "-q", package], cwd=cache, capture_output=True).returncode:
            return None
        (deb,) = cache.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", deb, folder], check=True)
        deb.unlink()
    return folder


def sections(package: str, folder: Path) -> list[tuple[str, list[str]]]:
    """Return the headings of a package's pages, each with the paragraphs behind it."""
    found: list[tuple[str, list[str]]] = []
    pages = [
        p
        for p in sorted(folder.rglob("*"))
        if re.search(r"\.(x?html?|page|docbook)(\.gz)?$", p.name) and p.is_file() and not p.is_symlink()
    ]
    for page in pages:
        place = page.relative_to(folder).as_posix()
        if re.search(r"/(translations|_modules|_sources|genindex\w*|search|py-modindex)\b", place):
            continue
        if (help_of := re.search(r"/(?:help|HTML)/([\w@]+)/", place)) and help_of[1] not in ("C", "en"):
            continue
        if (book := re.search(r"/html/([a-z]{2}-[A-Z]{2})/", place)) and book[1] != "en-US":
            continue
        content = page.read_bytes()
        text = (gzip.decompress(content) if page.suffix == ".gz" else content).decode("utf-8", "replace")
        if len(text) > 3_000_000:
            continue
        is_xml = ".page" in page.name or ".docbook" in page.name
        own: list[tuple[str, list[str]]] = []
        for part in _PART.finditer(_UNREAD.sub(" ", text)):
            if part["title"] is not None:
                if is_xml or part["title"].lower() != "title":
                    own.append((_NUMBER.sub("", plain(part["heading"]).rstrip("¶#").strip()), []))
            elif own and (paragraph := plain(part["text"])):
                own[-1][1].append(paragraph)
        found += own
    counts = Counter(title for title, _ in found)
    return [(title, paragraphs) for title, paragraphs in found if counts[title] <= 5 and not _FURNITURE.match(title)]


def plain(markup: str) -> str:
    """Return what a reader sees."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<(br|td|li)\b[^>]*>", " ", markup))).split())


def definitions(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the words of FOLDOC and their definitions."""
    content = gzip.decompress((folder / "usr/share/dictd/foldoc.dict.dz").read_bytes()).decode("utf-8", "replace")
    for entry in re.split(r"\n(?=\S)", content):
        word, _, text = entry.partition("\n")
        text = re.sub(r"[{}]|\(\d{4}-\d\d-\d\d\)", "", re.sub(r"^\s*<[^>]*>", "", text))
        paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)]
        yield " ".join(word.split()), [paragraph for paragraph in paragraphs if paragraph]


def is_prose(text: str) -> bool:
    """Return whether a text is made of words more than of code."""
    words = text.split()
    letters = sum(c.isalpha() or c == " " for c in text)
    return (
        FEWEST_WORDS <= len(words)
        and letters > 0.85 * len(text)
        and max(map(len, words)) <= 40
        and sum(c.isascii() for c in text) > 0.97 * len(text)
        and not re.search(r"(?i)last updated|created using|all rights reserved|permalink|[{}=<>|]{2}|::", text)
    )


def is_title(text: str) -> bool:
    """Return whether a heading tells what its section is about."""
    return 2 <= len(text.split()) <= 15 and sum(c.isalpha() or c == " " for c in text) > 0.8 * len(text)


def cut(text: str) -> str:
    """Return the first sentences of a long text."""
    words = text.split()
    if len(words) <= MOST_WORDS:
        return text
    part = " ".join(words[:MOST_WORDS])
    end = max(part.rfind(mark) for mark in (". ", "? ", "! "))
    return part[: end + 1] if end > len(part) // 3 else part


def packages() -> list[tuple[str, str]]:
    """Return titles and descriptions of Debian packages."""
    path = Path(os.environ["TERCET_DATA"]) / "train" / "debian_title_body.tsv"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [(title, body) for title, body in rows if not KEPT_OUT.search(f"{title} {body}")]


def in_order(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return titles and texts in the order of a hash, each title and each text once, by its words."""
    titles, bodies, found = set[str](), set[str](), []
    for title, body in sorted(pairs, key=lambda pair: (hashlib.blake2b(pair[1].encode()).digest(), pair[0])):
        if as_words(title) not in titles and as_words(body) not in bodies:
            titles.add(as_words(title))
            bodies.add(as_words(body))
            found.append((title, body))
    return found


def domain(name: str, cache: Path) -> list[tuple[str, str]]:
    """Return all titles and paragraphs of a dev domain, in the order of a hash."""
    if name == "packages":
        pairs = packages()
    else:
        package = {"help": HELP, "python": PYTHON}[name]
        folder = fetched(package, cache)
        if folder is None:
            raise SystemExit(f"{package}: apt-get cannot download it. Run apt-get update.")
        pairs = [(title, next(filter(is_prose, paragraphs), "")) for title, paragraphs in sections(package, folder)]
    good = ((title, cut(body)) for title, body in pairs if is_title(title) and len(body.split()) >= 8)
    return in_order((title, body) for title, body in good if not KEPT_OUT.search(f"{title} {body}"))


def write_dev(out: Path, cache: Path) -> None:
    """Write the search tasks, and all that is kept out of training for them."""
    out.mkdir(parents=True, exist_ok=True)
    kept_out, header, together = set[str](), "query\tcandidate\tlabel", list[str]()
    for name in ("help", "packages", "python"):
        pairs = domain(name, cache)
        chosen, draw = pairs[:NUM_QUERIES], np.random.default_rng(0)
        lines = list[str]()
        for number, (title, body) in enumerate(chosen):
            places = draw.choice(len(chosen) - 1, NUM_CANDIDATES - 1, replace=False)
            lines.append(f"{title}\t{body}\t1")
            lines += [f"{title}\t{chosen[place + (place >= number)][1]}\t0" for place in places]
        (out / f"{name}.tsv").write_text("".join(f"{line}\n" for line in [header, *lines]), encoding="utf-8")
        together += lines
        kept_out |= {as_words(text) for pair in (chosen if name == "packages" else pairs) for text in pair}
        print(f"{name}: {len(chosen):,} titles of {len(pairs):,}")
    (out / "search.tsv").write_text("".join(f"{line}\n" for line in [header, *together]), encoding="utf-8")
    (out / "keep-out.txt").write_text("".join(f"{words}\n" for words in sorted(kept_out)), encoding="utf-8")


def licence(folder: Path, package: str) -> str:
    """Return the licences that a package's copyright file names."""
    file = folder / "usr/share/doc" / package / "copyright"
    named = re.findall(r"^License:\s*(\S.*)$", file.read_text(errors="replace"), re.M) if file.is_file() else []
    return "; ".join(dict.fromkeys(named)) or "see the package's copyright file"


def write_train(out: Path, cache: Path, dev: Path, leaks: Path) -> None:
    """Write what recipes learn from."""
    known = {words for words in texts_below(leaks) if is_looked_for(words)}
    held_out = {*(dev / "keep-out.txt").read_text(encoding="utf-8").splitlines()}
    kept_out = known | held_out
    chance, seen = random.Random(0), set[str]()

    def is_new(text: str) -> bool:
        words = as_words(text)
        if words in seen or words in kept_out or KEPT_OUT.search(text) or "\t" in text:
            return False
        seen.add(words)
        return True

    titled, paragraphs, licences = list[tuple[str, str]](), list[str](), list[str]()
    for package in [FOLDOC, *DOCUMENTATION]:
        folder = fetched(package, cache)
        if folder is None:
            print(f"{package}: not to be had")
            continue
        parts = [*definitions(folder)] if package == FOLDOC else sections(package, folder)
        chance.shuffle(parts)
        num_titles, num_paragraphs, whole = 0, 0, package == FOLDOC
        for title, texts in parts:
            good = [cut(text) for text in texts if is_prose(text)]
            good = [text for text in good if is_new(text) and py3langid.classify(text)[0] == "en"]
            if good and (whole or is_title(title)) and not KEPT_OUT.search(title) and as_words(title) not in kept_out:
                if whole or num_titles < MOST_SECTIONS:
                    titled.append((title, good.pop(0)))
                    num_titles += 1
            taken = good[: max(0, min(3, MOST_PARAGRAPHS - num_paragraphs))]
            paragraphs += taken
            num_paragraphs += len(taken)
        if num_titles + num_paragraphs:
            licences.append(f"{package}\t{num_titles}\t{num_paragraphs}\t{licence(folder, package)}")
        print(f"{package}: {num_titles:,} sections, {num_paragraphs:,} more paragraphs", flush=True)
    descriptions = [
        (title, body)
        for title, body in in_order(packages())
        if as_words(title) not in kept_out and is_new(body) and is_prose(body)
    ]
    out.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("sections", titled), ("packages", descriptions)):
        lines = ["anchor\tpositive", *(f"{title}\t{body}" for title, body in pairs)]
        (out / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (out / "paragraphs.txt").write_text("".join(f"{text}\n" for text in paragraphs), encoding="utf-8")
    licences.insert(0, "package\tsections\tparagraphs\tlicences")
    (out / "licences.tsv").write_text("".join(f"{line}\n" for line in licences), encoding="utf-8")
    print(f"{len(titled):,} sections, {len(paragraphs):,} paragraphs, {len(descriptions):,} packages")


def main() -> None:
    """Write one of the two folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["dev", "train"])
    parser.add_argument("out", type=Path, metavar="FOLDER", help="where the files are written")
    parser.add_argument("--dev", type=Path, help="for train: the folder that `dev` wrote")
    parser.add_argument("--leaks", type=Path, metavar="EVAL", help="for train: the folder of evaluation texts")
    parser.add_argument("--cache", type=Path, default=Path("packages"), help="where packages are unpacked")
    options = parser.parse_args()
    if options.what == "dev":
        write_dev(options.out, options.cache)
    elif options.dev is None or options.leaks is None:
        parser.error("train needs --dev and --leaks")
    else:
        write_train(options.out, options.cache, options.dev, options.leaks)


if __name__ == "__main__":
    main()
