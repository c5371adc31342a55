"""Whether a text can be written as UTF-8 at all."""


def has_half_pair(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
