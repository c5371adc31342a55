"""TMX, the exchange format of translation memories: a stream of units, each with a text in every language.

The XML is read as a stream by expat. Nothing is ever fetched, and a document that declares entities is refused: they
are of no use in TMX, and a few of them can stand for gigabytes.
"""

import itertools
import os
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from tercet.data.reading.entries import Entry, changed, unreadable
from tercet.errors import RowError

_CHUNK = 2**16
_UTF16 = {b"\xff\xfe": "UTF-16LE", b"\xfe\xff": "UTF-16BE"}
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})
"""Elements within a text whose content is not text but the code of some program."""


class TmxFile:
    """A TMX file as records with one column a language, in small letters (`en`, `zh-cn`).

    Columns come in the order of the first unit, the header's source language first; the place of a record is the byte
    of its unit. It is closed by `close`, or when nobody has it any more.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing or cannot be read.
        RowError: It is not XML up to its first unit, or declares entities.
    """

    blocks: list[int] | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._stream = path.open("rb")
            self.close = weakref.finalize(self, self._stream.close)
            self._stat = os.fstat(self._stream.fileno())
            self._encoding = _UTF16.get(self._stream.read(2))
        except OSError as error:
            raise unreadable(path, error) from error
        self._order: list[str] = []
        first = next(self.entries(), None)
        self._order = list(first.record or ()) if first else []
        self.names: tuple[str, ...] | None = tuple(self._order) or None

    def use(self, columns: Collection[str]) -> None:
        """Do nothing: units are read as a whole."""

    def entries(self) -> Iterator[Entry]:
        """Yield the units, from the start.

        Raises:
            RowError: The rest of the file is not XML, or it declares entities.
        """
        return self._units(0, None)

    def entries_from(self, place: int, *, line: int = 0) -> Iterator[Entry]:
        """Yield the units from one on; those before it are read, because the rest alone is not XML."""
        return itertools.dropwhile(lambda entry: entry.place < place, self.entries())

    def record_at(self, place: int) -> dict[str, Any]:
        """Return the unit that starts at a byte.

        Raises:
            InputError: There is none: the file is not as it was.
        """
        try:
            entry = next(self._units(place, self._encoding), None)
        except RowError:
            entry = None
        if entry is None or entry.record is None:
            raise changed(self.path)
        return entry.record

    def check_unchanged(self) -> None:
        """Raise InputError if somebody wrote to the file."""
        now = os.fstat(self._stream.fileno())
        if (now.st_size, now.st_mtime_ns) != (self._stat.st_size, self._stat.st_mtime_ns):
            raise changed(self.path)

    def _units(self, place: int, encoding: str | None) -> Iterator[Entry]:
        reader = _Reader(place, encoding)
        try:
            self._stream.seek(place)
            done = False
            while not done:
                chunk = self._stream.read(_CHUNK)
                done = not chunk
                try:
                    reader.parser.Parse(chunk, done)
                except expat.ExpatError as error:
                    yield from self._entries(reader)  # those before it are whole
                    what = expat.ErrorString(error.code)
                    raise RowError(f"{self.path}:{error.lineno}: is not XML ({what}). Fix the file.") from error
                except (ValueError, LookupError) as error:  # an encoding that no XML may have, such as UTF-7
                    raise RowError(
                        f"{self.path}:1: is in an encoding that is not read ({error}). Write UTF-8."
                    ) from error
                except _Refused as error:
                    raise RowError(f"{self.path}:{reader.parser.CurrentLineNumber}: {error}") from error
                yield from self._entries(reader)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _entries(self, reader: "_Reader") -> Iterator[Entry]:
        self._encoding = self._encoding or reader.encoding
        units, reader.units = reader.units, []
        for line, place, texts in units:
            order = self._order or sorted(texts, key=lambda language: language != reader.source_language)
            known = {language: texts[language] for language in order if language in texts}
            yield Entry(line, place, known | texts)


class _Refused(Exception):
    """A document that is not read; says why."""


class _Reader:
    """Collects units while expat parses."""

    def __init__(self, place: int, encoding: str | None) -> None:
        self.units: list[tuple[int, int, dict[str, str]]] = []
        self.source_language: str | None = None
        self.encoding: str | None = None
        self._place, self._line = place, 0
        self._texts: dict[str, str] = {}
        self._language: str | None = None
        self._path: list[str] = []
        self._text: list[str] | None = None
        self.parser = expat.ParserCreate(encoding)
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.XmlDeclHandler = self._declared
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._entity

    def _declared(self, _version: str, encoding: str | None, _standalone: int) -> None:
        self.encoding = encoding

    def _entity(self, name: str, *_others: object) -> None:
        raise _Refused(f"has the entity {name!r}, and files with entities of their own are not read. Write the text.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name)
        if name == "header":
            self.source_language = attributes.get("srclang", "").lower()
        elif name == "tu":
            self._unit = (self.parser.CurrentLineNumber, self._place + self.parser.CurrentByteIndex)
            self._texts = {}
        elif name == "tuv":
            self._language = (attributes.get("xml:lang") or attributes.get("lang") or "").lower()
        elif name == "seg":
            self._text = []

    def _end(self, name: str) -> None:
        self._path.pop()
        if name == "seg" and self._text is not None and self._language is not None:
            self._texts[self._language] = " ".join("".join(self._text).split())
            self._text = None
        elif name == "tu":
            self.units.append((*self._unit, self._texts))

    def _data(self, text: str) -> None:
        if self._text is not None and _CODES.isdisjoint(self._path):
            self._text.append(text)
