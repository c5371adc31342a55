"""Cleaning of parallel pairs: rules by name, each on or off by itself, each counting what it leaves out."""

from collections.abc import Callable

import regex
from pydantic import Field, field_validator

from tercet.data.rows.kinds import ParallelPair
from tercet.storage.hashing import text_key
from tercet.storage.settings import Settings

_SCRIPTS = {
    **dict.fromkeys(
        "en fr de es it pt nl sv da no nb fi pl cs sk sl hr hu ro et lv lt tr vi id ms sw".split(), ("Latin",)
    ),
    **dict.fromkeys("ru uk bg sr mk be kk mn".split(), ("Cyrillic",)),
    **dict.fromkeys("ar fa ur".split(), ("Arabic",)),
    **dict.fromkeys("hi mr ne".split(), ("Devanagari",)),
    "zh": ("Han",),
    "ja": ("Han", "Hiragana", "Katakana"),
    "ko": ("Han", "Hangul"),
    "el": ("Greek",),
    "he": ("Hebrew",),
    "th": ("Thai",),
    "ka": ("Georgian",),
    "hy": ("Armenian",),
    "bn": ("Bengali",),
    "ta": ("Tamil",),
}
"""The scripts of each language, by their names in Unicode."""


def _letters_of(*scripts: str) -> str:
    """Return the inside of a set of a regular expression; Unicode counts the long-vowel mark to no script."""
    return "".join(rf"\p{{Script={script}}}" for script in scripts) + ("ー" if "Katakana" in scripts else "")


_OF_SCRIPT = {language: regex.compile(f"[{_letters_of(*scripts)}]") for language, scripts in _SCRIPTS.items()}
_LONE = _letters_of(*_SCRIPTS["ja"], *_SCRIPTS["th"])
"""Characters of scripts that have no blanks between words."""
_WORD = regex.compile(rf"[{_LONE}]|[^\s{_LONE}]+")
_WORD_WITH_BLANKS = regex.compile(rf"\s*(?:{_WORD.pattern})")
_LETTERS = regex.compile(rf"[{_LONE}]|(?:(?![{_LONE}])[\p{{L}}\p{{Nl}}\p{{No}}])+")

_MARKUP = regex.compile(r"</?[A-Za-z][^<>]*>|&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]{2,8});")


class CleanSettings(Settings):
    """Which parallel pairs are left out. A rule that is not given is off, and each counts what it leaves out."""

    length_ratio: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """How many times as long as the other a side may be; a Chinese, Japanese or Thai character counts as a word."""

    languages: tuple[str, str] | None = None
    """The languages of source and target, such as [en, zh]: at least half of the words of a side are in its script."""

    duplicates: bool = False
    """Whether a pair is left out that stood before, in the same source or an earlier one."""

    identical: bool = False
    """Whether a pair is left out whose sides are the same text, capital letters aside."""

    markup: bool = False
    """Whether a pair is left out that has tags or entities of HTML or XML on a side."""

    @field_validator("languages")
    @classmethod
    def _known(cls, value: tuple[str, str] | None) -> tuple[str, str] | None:
        for language in value or ():
            if language not in _SCRIPTS:
                raise ValueError(f"{language!r}: its script is not known. Known: {', '.join(sorted(_SCRIPTS))}")
        return value


class Cleaner:
    """Says which rule leaves a pair out. One serves all sources of some rows, because duplicates stand in several."""

    def __init__(self, settings: CleanSettings) -> None:
        self._settings = settings
        self._seen: set[int] = set()
        chosen: dict[str, Callable[[ParallelPair], bool]] = {
            "identical": self._is_identical,
            "markup": self._has_markup,
            "length_ratio": self._is_uneven,
            "languages": self._is_foreign,
            "duplicates": self._is_duplicate,  # the last one: what others leave out is no earlier pair
        }
        self._rules = {name: rule for name, rule in chosen.items() if getattr(settings, name)}

    @property
    def names(self) -> list[str]:
        """The rules that are on, in the order in which they are asked."""
        return list(self._rules)

    def __call__(self, pair: ParallelPair) -> str | None:
        """Return the first rule that leaves a pair out; None where it stays."""
        return next((name for name, is_bad in self._rules.items() if is_bad(pair)), None)

    def _is_identical(self, pair: ParallelPair) -> bool:
        return pair.source.strip().casefold() == pair.target.strip().casefold()

    def _has_markup(self, pair: ParallelPair) -> bool:
        return bool(_MARKUP.search(pair.source) or _MARKUP.search(pair.target))

    def _is_uneven(self, pair: ParallelPair) -> bool:
        shorter, longer = sorted(map(num_words, (pair.source, pair.target)))
        return longer > (self._settings.length_ratio or 1) * shorter

    def _is_foreign(self, pair: ParallelPair) -> bool:
        sides = zip((pair.source, pair.target), self._settings.languages or (), strict=True)
        return any(script_share(text, language) < 0.5 for text, language in sides)

    def _is_duplicate(self, pair: ParallelPair) -> bool:
        key = text_key(f"{len(pair.source)} {pair.source}{pair.target}")
        if key in self._seen:
            return True
        self._seen.add(key)
        return False


def script_share(text: str, language: str) -> float:
    """Return which share of a text's words begin in a language's script; 1 where no word has letters."""
    words = _LETTERS.findall(text)
    return sum(map(bool, map(_OF_SCRIPT[language].match, words))) / len(words) if words else 1.0


def num_words(text: str) -> int:
    """Return how many words a text has; a Chinese, Japanese or Thai character counts as one."""
    return len(_WORD.findall(text))


def split_words(text: str) -> list[str]:
    """Return a text's words, each with the blanks before it; a Chinese, Japanese or Thai character is one."""
    return _WORD_WITH_BLANKS.findall(text)
