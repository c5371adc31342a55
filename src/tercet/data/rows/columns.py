"""Which column is what: fields of each kind of file, the names that columns have in the wild, and choosing by them."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

FileKind = Literal["labelled", "scored", "triplets", "sets", "parallel", "pairs", "texts"]
"""What a file holds. Where it is not said, the first of these whose columns are there is taken."""

RowKind = Literal["triplets", "labelled", "nli", "scored", "parallel"]
"""What a stage learns from. `nli` is triplets, labelled pairs that are not neutral, and texts, each as it stands."""

FIELDS: dict[FileKind, tuple[str, ...]] = {
    "labelled": ("premise", "hypothesis", "label"),
    "scored": ("a", "b", "score"),
    "triplets": ("anchor", "positive", "negative"),
    "sets": ("texts",),
    "parallel": ("source", "target"),
    "pairs": ("anchor", "positive"),
    "texts": ("text",),
}
"""The fields of each kind of file. `negative` may be several columns; `texts` is a list of texts that mean the same."""

GIVES: dict[RowKind, tuple[FileKind, ...]] = {
    "triplets": ("labelled", "triplets", "sets", "parallel", "pairs", "texts"),
    "labelled": ("labelled",),
    "nli": ("labelled", "triplets", "texts"),
    "scored": ("scored",),
    "parallel": ("parallel", "pairs"),
}
"""The kinds of file that give each kind of row."""

ALIASES: dict[str, tuple[str, ...]] = {
    "anchor": ("anchor", "premise", "sentence1", "sent0", "query", "question", "title", "text_a", "text1", "words"),
    "positive": ("positive", "entailment", "sentence2", "sent1", "answer", "body", "text_b", "text2", "gloss"),
    "premise": ("premise", "sentence1", "sentence_a", "text_a"),
    "hypothesis": ("hypothesis", "sentence2", "sentence_b", "text_b"),
    "label": ("gold_label", "label", "entailment_judgment"),
    "a": ("a", "sentence1", "sentence_a", "text_a", "text1"),
    "b": ("b", "sentence2", "sentence_b", "text_b", "text2"),
    "score": ("score", "relatedness_score", "similarity_score", "similarity"),
    "source": ("source", "src", "english"),
    "target": ("target", "tgt", "trg", "non_english"),
    "text": ("text", "sentence", "caption"),
    "texts": ("texts", "set", "sentences", "paraphrases", "captions", "same_image"),
}  # fmt: skip
"""The names of columns that stand for each field; capital letters, blanks and hyphens make no difference."""

NEGATIVE = re.compile(r"(negative|neg|hard_neg|hard_negative|contradiction)s?_?\d*")
"""The names of columns with negatives: one, a numbered one of several, or one with a list."""

_LANGUAGE = re.compile(r"[a-z]{2}(_[a-z]{2,4})?")
_JUDGED = {*ALIASES["label"], *ALIASES["score"], "is_duplicate", "quality"}

Columns = Mapping[str, str | Sequence[str]]
"""Field to column; for `negative` to one or several."""


class UnknownColumns(Exception):
    """The columns of a record are not those of a kind; says why, and the fix."""


def choose_kind(names: Sequence[str], *, wanted: RowKind, given: Columns) -> FileKind:
    """Return what a file holds, by its columns.

    Args:
        names: The columns of a record.
        wanted: What rows it is to give.
        given: Columns that were named.

    Raises:
        UnknownColumns: No kind of file has these columns.
    """
    candidates = [kind for kind in FIELDS if kind in GIVES[wanted] and set(given) <= set(FIELDS[kind])]
    judged = [name for name in names if _plain(name) in _JUDGED]
    for kind in candidates:
        columns = _find(kind, names, given)
        if all(columns.values()):
            if kind in ("pairs", "parallel") and judged and not given:
                raise UnknownColumns(
                    f"has the columns {', '.join(names)}, and {judged[0]!r} may say that some rows are no positives. "
                    f"To take all of them name the kind: kind: {kind}."
                )
            return kind
    raise UnknownColumns(
        f"has the columns {', '.join(names)}, which are not known. "
        f"Name them: {' or '.join(_example(kind) for kind in candidates or GIVES[wanted])}."
    )


def bind(kind: FileKind, names: Sequence[str], given: Columns) -> dict[str, tuple[str, ...]]:
    """Return the columns of each field; only `negative` may have none or several.

    Raises:
        UnknownColumns: A field has no column, or more than one.
    """
    columns = _find(kind, names, given)
    missing = [field for field, found in columns.items() if not found and field != "negative"]
    if missing:
        fields = " and ".join(repr(field) for field in missing)
        raise UnknownColumns(f"has no column for {fields} but {', '.join(names)}. Name it: {_example(kind)}.")
    for field, found in columns.items():
        if len(found) > 1 and field != "negative":
            both = " and ".join(map(repr, found))
            raise UnknownColumns(f"has {both} for {field!r}. Say which one: columns: {{{field}: {found[0]}}}.")
    return columns


def _find(kind: FileKind, names: Sequence[str], given: Columns) -> dict[str, tuple[str, ...]]:
    columns = {field: _column(field, names, given) for field in FIELDS[kind]}
    if kind == "texts" and len(names) == 1 and not given:
        columns["text"] = (names[0],)
    languages = [name for name in names if _LANGUAGE.fullmatch(_plain(name))]
    if kind == "parallel" and not any(columns.values()) and len(languages) == 2:
        columns = {"source": (languages[0],), "target": (languages[1],)}
    return columns


def _column(field: str, names: Sequence[str], given: Columns) -> tuple[str, ...]:
    if field in given:
        asked = given[field]
        columns = [asked] if isinstance(asked, str) else asked
        return tuple(column for column in columns if column in names or column.split(".")[0] in names)
    if field == "negative":
        return tuple(sorted((name for name in names if NEGATIVE.fullmatch(_plain(name))), key=_numbered))
    return tuple(name for name in names if _plain(name) in ALIASES[field])


def _plain(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _numbered(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def _example(kind: FileKind) -> str:
    return f"columns: {{{', '.join(f'{field}: ...' for field in FIELDS[kind])}}}"
