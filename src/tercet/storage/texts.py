"""Texts as a program gives them: is it a list of them, and can each be written as UTF-8?"""

from collections.abc import Iterable, Mapping, Sequence, Set

from tercet.errors import InputError, TextError, TextTypeError


def has_half_pair(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def list_of_texts(texts: object) -> list[str]:
    """Return texts as a list: of a list, a tuple, an array, a column of a table, or whatever else has an order.

    Raises:
        InputError: It is something else, such as a mapping or a whole table, whose names would be taken for texts.
    """
    is_other = isinstance(texts, str | bytes | Mapping | Set) or hasattr(texts, "columns")
    if is_other or not isinstance(texts, Iterable):
        fix = "Write [text]." if isinstance(texts, str) else "Give a list of strings."
        raise InputError(f"{type(texts).__name__}: was given where a list of texts is wanted. {fix}")
    as_strings = getattr(texts, "to_pylist", None)  # a column of Arrow gives scalars of its own when it is iterated
    return list(texts if as_strings is None else as_strings())


def check_texts(texts: Sequence[str]) -> None:
    """Raise TextError if something is no text, or InputError where it is no list of them."""
    if not isinstance(texts, list | tuple):
        list_of_texts(texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TextTypeError(i, f"is of type {type(text).__name__}. Give strings.")
        if has_half_pair(text):
            raise TextError(i, "is not Unicode (it has half a surrogate pair). Decode it as UTF-8.")


def several(value: object) -> list[str]:
    """Return names as a list of strings; one alone is a list of one."""
    return [str(value)] if not isinstance(value, Iterable) or isinstance(value, str) else [str(each) for each in value]
