"""The verb `label`: a small evaluation set of your own texts, made by answering questions, for `adapt --eval`.

A question is a query and a few texts that may match it. Queries are yours: typed for a text that is shown, or its
telling words, which you may accept. Candidates come from the start, from the adapted encoder where there is one, and
from chance, in an order that hides which.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tercet.adaptation.folder import LABELS, RUN, locked_adaptation
from tercet.data.feeding.sources import open_rows
from tercet.data.reading.datasets import HUB
from tercet.data.reading.formats import read_records
from tercet.data.rows.given import given_files
from tercet.data.rows.kinds import texts_of
from tercet.data.rows.words import as_words
from tercet.encoder.encoder import Encoder
from tercet.encoder.model.arrays import unit
from tercet.errors import InputError, RowError, SettingError
from tercet.reporting.document import one_line
from tercet.storage.choices import DEFAULT_MODEL
from tercet.storage.files import atomic_write, make_folder, read_json, write_json
from tercet.storage.hashing import text_key
from tercet.training.runs import ENCODER
from tercet.vectors.store import VectorStore

_ANSWERS, _RERANK, _FORM = "answers.json", "rerank.tsv", "form.tsv"
_COLUMNS = ("question", "query", "text", "match")

_NUM_CANDIDATES, _NUM_BY_CHANCE = 6, 2
_MAX_POOL = 2_000
_LEAST_POOL = 10
_NUM_WORDS = 4
_SKIP = "-"

Ask = Callable[[str], str]
"""Shows a text and returns what was typed."""


@dataclass(frozen=True)
class Labels:
    """What was labelled so far."""

    out: Path
    num: int
    """How many questions are answered."""
    wanted: int
    is_form: bool

    @property
    def rerank(self) -> Path:
        """The file for `adapt --eval`."""
        return self.out / LABELS / _RERANK

    @property
    def form(self) -> Path:
        """The file to fill in."""
        return self.out / LABELS / _FORM

    def __repr__(self) -> str:
        lines = [f"{self.num} of {self.wanted} questions are answered."]
        if self.num < self.wanted:
            how = f"Mark what matches with 1 in {self.form}, then" if self.is_form else "To go on,"
            lines.append(f"{how} give the same command again.")
        if self.num:
            lines.append(f"Judge by them: --eval rerank:{self.rerank}")
        return "\n".join(lines)


def label(
    sentences: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    num: int = 50,
    model: str | Path = DEFAULT_MODEL,
    column: str | None = None,
    max_sentences: int | None = None,
    seed: int = 0,
    ask: Ask | None = None,
) -> Labels:
    """Make an evaluation set of your own texts, for `adapt(..., evals=[...])`, by answering questions.

    `out/labels/` gets `rerank.tsv`. Answers are saved one by one; called again, it goes on where it was.

    Args:
        sentences: A list of texts; or a file with one per row or a dataset of the hub, a list of Paths for several.
        out: The folder of the adaptation. Where it holds an adapted encoder, that one proposes candidates, too.
        num: How many questions.
        model: The encoder that adaptation starts from.
        column: The column with the text.
        max_sentences: The most texts of each source.
        seed: What texts, candidates and their order are drawn with.
        ask: Shows a text and returns what was typed, such as `input`; None for a file to fill in,
            `out/labels/form.tsv`, which a second call reads.

    Raises:
        TercetError: An input or a model is not as it should be, or the file was filled in with something else.
    """
    if num < 1:
        raise SettingError(f"label {num}: there must be a question. Give 1 or more.")
    folder = Path(out) / LABELS
    with locked_adaptation(Path(out)):
        make_folder(folder)
        if ask is None and (folder / _FORM).exists():
            questions = _read_form(folder / _FORM)
            answered = [question for question in questions if any(question["matches"].values())]
            _write_rerank(folder, answered)
            return Labels(Path(out), len(answered), len(questions), True)
        texts = _pool(sentences, column, max_sentences)
        adapted = Path(out) / RUN / ENCODER
        names = [str(model), *([str(adapted)] if adapted.exists() else [])]
        proposer = _Proposer(texts, [VectorStore(Encoder.load(name)) for name in names], seed)
        if ask is None:
            _write_form(folder, proposer, num)
            return Labels(Path(out), 0, num, True)
        return Labels(Path(out), _in_terminal(folder, proposer, num, ask), num, False)


def _pool(sentences: str | Path | Sequence[str | Path], column: str | None, most: int | None) -> list[str]:
    """Return different texts from all over the sources."""
    columns = {} if column is None else {"columns": {"text": column}}
    found: dict[str, str] = {}
    for path in given_files(sentences):
        source = {"path": path, "stream": path.startswith(HUB), **columns}
        rows = open_rows({"sources": [source], "on_error": "skip", "max_bad_fraction": 1.0}, kind="texts", rank=1)
        read = chain.from_iterable(texts_of(row) for row in rows)
        for text in islice(read, most):
            found.setdefault(as_words(text), one_line(text))
    found.pop("", None)
    texts = [*found.values()]
    if len(texts) < _LEAST_POOL:
        raise InputError(f"{len(texts)} different texts: too few to choose from. Give {_LEAST_POOL} or more.")
    return [texts[i * len(texts) // _MAX_POOL] for i in range(_MAX_POOL)] if len(texts) > _MAX_POOL else texts


class _Proposer:
    """Proposes queries and candidates."""

    def __init__(self, texts: Sequence[str], encoders: Sequence[VectorStore], seed: int) -> None:
        self.texts, self._encoders, self._seed = texts, encoders, seed
        self._spaces = [unit(embed(texts)) for embed in encoders]
        self._frequency = Counter(word for text in texts for word in set(as_words(text).split()))

    def in_random_order(self) -> list[str]:
        """Return all texts in a random order, which is always the same."""
        return [self.texts[i] for i in np.random.default_rng(self._seed).permutation(len(self.texts))]

    def query(self, text: str) -> str:
        """Return the rarest words of a text, in its order."""
        words = [*dict.fromkeys(as_words(text).split())]
        rarest = sorted(words, key=lambda word: (not word.isalpha(), self._frequency[word], words.index(word)))
        return " ".join(sorted(rarest[:_NUM_WORDS], key=words.index))

    def candidates(self, query: str, own: str) -> list[str]:
        """Return texts that may match a query, in random order: the encoders' nearest in turns, and some by chance.

        Args:
            query: The query.
            own: The text that it was made for, which is not among them.
        """
        draw = np.random.default_rng([self._seed, text_key(query) % 2**63, text_key(own) % 2**63])
        rankings = [
            np.argsort(-(space @ unit(embed([query]))[0]), kind="stable")[: 2 * _NUM_CANDIDATES].tolist()
            for space, embed in zip(self._spaces, self._encoders, strict=True)
        ]
        draw.shuffle(rankings)  # who proposes first may see what both would propose
        by_turns = [row for rows in zip_longest(*rankings) for row in rows if row is not None]
        nearest = [row for row in dict.fromkeys(by_turns) if self.texts[row] != own]
        nearest = nearest[: _NUM_CANDIDATES - _NUM_BY_CHANCE]
        drawn = [row for row in draw.permutation(len(self.texts)).tolist() if self.texts[row] != own]
        rows = [*dict.fromkeys([*nearest, *drawn])][:_NUM_CANDIDATES]
        draw.shuffle(rows)
        return [self.texts[row] for row in rows]


def _in_terminal(folder: Path, proposer: _Proposer, num: int, ask: Ask) -> int:
    """Ask until there are enough answers, or until the user stops; return how many there are."""
    path = folder / _ANSWERS
    done: list[dict[str, Any]] = read_json(path) if path.exists() else []
    seen = {question["text"] for question in done}
    num_answered = sum(question["query"] is not None for question in done)
    try:
        for text in proposer.in_random_order():
            if num_answered >= num:
                break
            if text not in seen:
                done.append(_question(proposer, text, ask, f"{num_answered + 1} of {num}"))
                num_answered += done[-1]["query"] is not None
                write_json(path, done)
                _write_rerank(folder, [question for question in done if question["query"] is not None])
    except (EOFError, KeyboardInterrupt):
        pass  # what was answered is saved
    return num_answered


def _question(proposer: _Proposer, text: str, ask: Ask, title: str) -> dict[str, Any]:
    """Ask for a query that a text answers, and which other texts do."""
    proposed = proposer.query(text)
    query = one_line(
        ask(
            f"\n--- {title} (Ctrl-D stops, answers are saved) ---\n{text}\n\n"
            f'What would you search for to find this text?\nEnter for "{proposed}", {_SKIP} for another text: '
        )
    )
    if query == _SKIP:
        return {"text": text, "query": None, "matches": {}}
    query = query or proposed
    found = proposer.candidates(query, text)
    listed = "\n".join(f"  {number}  {candidate}" for number, candidate in enumerate(found, start=1))
    message = f'\n{listed}\n\nWhich of these match "{query}" as well? Numbers such as 1 3, Enter for none: '
    while (numbers := _numbers(ask(message), len(found))) is None:
        message = f"Numbers from 1 to {len(found)}, with blanks between them, or Enter for none: "
    return {
        "text": text,
        "query": query,
        "matches": {text: True, **{c: number in numbers for number, c in enumerate(found, start=1)}},
    }


def _numbers(typed: str, most: int) -> set[int] | None:
    words = typed.replace(",", " ").split()
    numbers = {int(word) for word in words if word.isascii() and word.isdigit()}
    return numbers if all(w.isascii() and w.isdigit() for w in words) and numbers <= {*range(1, most + 1)} else None


def _write_form(folder: Path, proposer: _Proposer, num: int) -> None:
    lines = ["\t".join(_COLUMNS)]
    for number, text in enumerate(islice(proposer.in_random_order(), num), start=1):
        query = proposer.query(text)
        listed = [text, *proposer.candidates(query, text)]
        np.random.default_rng(text_key(text) % 2**63).shuffle(listed)
        lines += [f"{number}\t{query}\t{candidate}\t" for candidate in listed]
    _write_lines(folder / _FORM, lines)


def _read_form(path: Path) -> list[dict[str, Any]]:
    """Return the questions with the texts that are marked; the query is the one in the first row of each."""
    questions: dict[str, dict[str, Any]] = {}
    for line, record in read_records(path):
        missing = [name for name in _COLUMNS if name not in record]
        if missing:
            raise RowError(f"{path}:{line}: has no column {missing[0]!r}. Keep the columns: {', '.join(_COLUMNS)}.")
        mark = str(record["match"] or "").strip()
        if mark not in ("", "0", "1"):
            raise RowError(f"{path}:{line}: match is {mark!r}. Write 1 where the text matches, 0 or nothing else.")
        question = questions.setdefault(str(record["question"]), {"query": str(record["query"]), "matches": {}})
        question["matches"][str(record["text"])] = mark == "1"
    return [*questions.values()]


def _write_rerank(folder: Path, questions: Sequence[dict[str, Any]]) -> None:
    rows = [
        f"{question['query']}\t{text}\t{int(matches)}"
        for question in questions
        for text, matches in question["matches"].items()
    ]
    if rows:
        _write_lines(folder / _RERANK, ["query\tcandidate\tlabel", *rows])


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    with atomic_write(path, "w") as stream:
        stream.write("\n".join(lines) + "\n")
