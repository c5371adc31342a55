"""Which column is what: fields of each kind of file, the names that columns have in the wild, and choosing by them."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

FileKind = Literal[
    "nli", "scored", "rerank", "triplets", "sets", "parallel", "pairs", "texts", "paraphrase", "classes",
    "titles",
]  # fmt: skip
"""What a file holds. Where it is not said, its columns tell."""

RowKind = Literal[
    "texts", "triplets", "nli", "inference", "scored", "paraphrase", "rerank", "parallel", "classes"
]  # fmt: skip
"""What a reader wants. `inference` is what a synthesizer learns from: triplets, NLI pairs that are not neutral, texts,
which entail themselves, and titles. `texts` is a row of any kind, for the sake of its texts."""

FIELDS: dict[FileKind, tuple[str, ...]] = {
    "nli": ("premise", "hypothesis", "label"),
    "scored": ("a", "b", "score"),
    "paraphrase": ("a", "b", "label"),
    "rerank": ("query", "candidate", "label"),
    "classes": ("text", "label"),
    "triplets": ("anchor", "positive", "negative"),
    "sets": ("texts",),
    "parallel": ("source", "target"),
    "pairs": ("anchor", "positive"),
    "texts": ("text",),
    "titles": ("anchor", "positive"),
}
"""The fields of each kind of file. `negative` may be several columns; `texts` is a list of texts that mean the same."""

GIVES: dict[RowKind, tuple[FileKind, ...]] = {
    "texts": (
        "nli", "triplets", "sets", "parallel", "pairs", "texts", "scored", "rerank", "paraphrase", "classes"
    ),
    "triplets": ("nli", "triplets", "sets", "parallel", "pairs", "texts", "rerank", "paraphrase", "classes"),
    "nli": ("nli",),
    "inference": ("nli", "triplets", "texts", "titles"),
    "scored": ("scored",),
    "paraphrase": ("paraphrase",),
    "rerank": ("rerank",),
    "parallel": ("parallel", "pairs"),
    "classes": ("classes",),
}  # fmt: skip
"""The kinds of file that give each kind of row. Where the kind is not said, the first that has the columns is taken."""

GROUPED: tuple[FileKind, ...] = ("nli", "paraphrase", "rerank")
"""The kinds of file whose pairs become triplets by grouping those of one premise, first text or query."""

_ONLY_NAMED: tuple[FileKind, ...] = ("paraphrase", "classes", "titles")
"""Kinds that are never guessed where other rows are wanted: 0 and 1 may stand for anything, a text is a text, and an
anchor may be more than a title."""

ALIASES: dict[str, tuple[str, ...]] = {
    "anchor": ("anchor", "premise", "sentence1", "sent0", "query", "question", "title", "text_a", "text1", "words"),
    "positive": ("positive", "entailment", "sentence2", "sent1", "answer", "body", "text_b", "text2", "gloss"),
    "premise": ("premise", "sentence1", "sentence_a", "text_a"),
    "hypothesis": ("hypothesis", "sentence2", "sentence_b", "text_b"),
    "label": ("gold_label", "label", "entailment_judgment"),
    "a": ("a", "sentence1", "sentence_a", "text_a", "text1"),
    "b": ("b", "sentence2", "sentence_b", "text_b", "text2"),
    "score": ("score", "relatedness_score", "similarity_score", "similarity"),
    "query": ("query", "question"),
    "candidate": ("candidate", "document", "passage"),
    "source": ("source", "src", "english"),
    "target": ("target", "tgt", "trg", "non_english"),
    "text": ("text", "sentence", "caption"),
    "texts": ("texts", "set", "sentences", "paraphrases", "captions", "same_image"),
}  # fmt: skip
"""The names of columns that stand for each field; capital letters, blanks and hyphens make no difference."""

NEGATIVE = re.compile(r"(negative|neg|hard_neg|hard_negative|contradiction)s?_?\d*")
"""The names of columns with negatives: one, a numbered one of several, or one with a list."""

_LANGUAGE = re.compile(r"([a-z]{2})(_[a-z]{2,4})?")
_LANGUAGES = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu "
    "ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na "
    "nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so "
    "sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za "
    "zh zu".split()
)
"""ISO 639-1."""
_JUDGED = {*ALIASES["label"], *ALIASES["score"], "is_duplicate", "quality"}

Columns = Mapping[str, str | Sequence[str]]
"""Field to column; for `negative` to one or several."""


class UnknownColumns(Exception):
    """The columns of a record are not those of a kind.

    Args:
        problem: What is wrong with them.
        fix: What a recipe can do about it; who reads without one says something else.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem} {fix}")
        self.problem = problem
        self.fix = fix


def choose_kind(names: Sequence[str], *, wanted: RowKind, given: Columns) -> FileKind:
    """Return what a file holds, by its columns.

    Args:
        names: The columns of a record.
        wanted: What rows it is to give.
        given: Columns that were named.

    Raises:
        UnknownColumns: No kind of file has these columns.
    """
    if wanted == "texts" and "text" in names and not given:
        return "texts"
    guessed = [kind for kind in GIVES[wanted] if given or kind == wanted or kind not in _ONLY_NAMED]
    candidates = [kind for kind in guessed if set(given) <= set(FIELDS[kind])]
    for kind in candidates:
        if has_columns(kind, names, given):
            judged = _judged(names)
            if kind in ("pairs", "parallel") and judged and not given and wanted != "texts":
                some = " Where 1 marks the positives: kind: paraphrase." if "paraphrase" in GIVES[wanted] else ""
                raise UnknownColumns(
                    f"has the columns {', '.join(names)}, and {judged!r} may say that some rows are no positives.",
                    f"To take all of them name the kind: kind: {kind}.{some}",
                )
            return kind
    raise UnknownColumns(
        f"has the columns {', '.join(names)}, which are not known.",
        f"Name them: {' or '.join(_example(kind) for kind in candidates or guessed)}.",
    )


def has_columns(kind: FileKind, names: Sequence[str], given: Columns | None = None) -> bool:
    """Return whether every field of a kind has a column."""
    return all(_find(kind, names, given or {}).values())


def is_judged(names: Sequence[str]) -> bool:
    """Return whether a column may say that some pairs are no positives."""
    return _judged(names) is not None


def bind(kind: FileKind, names: Sequence[str], given: Columns) -> dict[str, tuple[str, ...]]:
    """Return the columns of each field; only `negative` may have none or several.

    Raises:
        UnknownColumns: A field has no column, or more than one.
    """
    columns = _find(kind, names, given)
    missing = [field for field, found in columns.items() if not found and field != "negative"]
    if missing:
        asked = [given[field] for field in missing if field in given]
        what = " and ".join(repr(name) for name in (asked or missing))
        raise UnknownColumns(
            f"has no column {'' if asked else 'for '}{what}. It has: {', '.join(names)}.", f"Name it: {_example(kind)}."
        )
    for field, found in columns.items():
        if len(found) > 1 and field != "negative":
            both = " and ".join(map(repr, found))
            raise UnknownColumns(f"has {both} for {field!r}.", f"Say which one: columns: {{{field}: {found[0]}}}.")
    return columns


def _find(kind: FileKind, names: Sequence[str], given: Columns) -> dict[str, tuple[str, ...]]:
    columns = {field: _column(field, names, given) for field in FIELDS[kind]}
    if "text" in columns and "text" in names and not given:
        columns["text"] = ("text",)
    if kind == "texts" and len(names) == 1 and not given:
        columns["text"] = (names[0],)
    languages = [name for name in names if _is_language(_plain(name))]
    if kind == "parallel" and not any(columns.values()) and len(languages) == 2:
        columns = {"source": (languages[0],), "target": (languages[1],)}
    return columns


def _is_language(name: str) -> bool:
    match = _LANGUAGE.fullmatch(name)
    return match is not None and match[1] in _LANGUAGES


def _column(field: str, names: Sequence[str], given: Columns) -> tuple[str, ...]:
    if field in given:
        asked = given[field]
        columns = [asked] if isinstance(asked, str) else asked
        return tuple(column for column in columns if column in names or column.split(".")[0] in names)
    if field == "negative":
        return tuple(sorted((name for name in names if NEGATIVE.fullmatch(_plain(name))), key=_numbered))
    return tuple(name for name in names if _plain(name) in ALIASES[field])


def _judged(names: Sequence[str]) -> str | None:
    return next((name for name in names if _plain(name) in _JUDGED), None)


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _numbered(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def _example(kind: FileKind) -> str:
    return f"columns: {{{', '.join(f'{field}: ...' for field in FIELDS[kind])}}}"
