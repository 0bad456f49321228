"""Files of GNU gettext (PO): messages with their translations.

| entry | pairs |
|---|---|
| with a translation | the message and its translation |
| with a plural | the singular with form 0, the plural with the last form |
| with the flag `fuzzy`, obsolete (`#~`), or without a translation | none, counted by reason |
| with the context and message of an earlier one | none, counted as `repeated_id` |

The header (the entry of the empty message) states the encoding, the number of plural forms, and the language of the translations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from fewstep.documents.document import (
    FUZZY,
    MAX_UNIT_BYTES,
    OBSOLETE,
    REPEATED_ID,
    UNTRANSLATED,
    DocumentError,
    Edit,
    Languages,
    Segment,
    Unit,
    lines_of,
)
from fewstep.text.languages import is_language

WIDTH = 76
"""Characters of a line of a translation that is written, quotation marks left out, as gettext wraps them."""

_STRING = rb'"((?:[^"\\]|\\.)*)"[ \t]*'
_LINE = re.compile(rb"(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]*)?" + _STRING)
_OBSOLETE = re.compile(rb"#~\|?[ \t]*")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.S)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_WRITTEN = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\t": r"\t", "\r": r"\r", "\a": r"\a", "\b": r"\b", "\f": r"\f", "\v": r"\v"}
_CHARSET = re.compile(r"^Content-Type:.*charset=([^\s;]+)", re.M | re.I)
_LANGUAGE = re.compile(r"^Language:[ \t]*(\S+)", re.M)
_PLURAL_FORMS = re.compile(r"^Plural-Forms:[ \t]*nplurals=([1-9])\b", re.M)
_PARAGRAPH = re.compile(r"[^\n]*\n|[^\n]+")
_UTF8 = ("utf-8", "utf8", "us-ascii", "ascii", "charset")
"""Encodings that are read; `CHARSET` is what templates have in its place."""


class String(NamedTuple):
    """A string of an entry: its text, and its bytes in the file, from the keyword to the last quotation mark."""

    text: str
    line: int
    start: int
    stop: int


@dataclass
class Entry:
    """A message with its translations."""

    start: int | None = None
    """The byte at which it begins, its comments included."""
    strings: dict[str, String] = field(default_factory=dict)
    """By keyword: `msgid`, `msgstr`, `msgstr[0]`, ..."""
    fuzzy: bool = False
    flags: int | None = None
    """The byte behind the `#,` of its first line of flags."""
    obsolete: bool = False

    @property
    def line(self) -> int:
        return self.strings["msgid"].line

    @property
    def key(self) -> tuple[str, str]:
        """The context and the message, by which gettext knows an entry."""
        return self.strings["msgctxt"].text if "msgctxt" in self.strings else "", self.strings["msgid"].text

    @property
    def is_header(self) -> bool:
        return self.key == ("", "") and "msgctxt" not in self.strings and not self.obsolete

    @property
    def forms(self) -> list[String]:
        """The translations: one, or the forms of a plural."""
        return [string for name, string in self.strings.items() if name.startswith("msgstr")]

    @property
    def sides(self) -> list[tuple[String, list[String]]]:
        """The message with its translation; or the singular with form 0, and the plural with the other forms."""
        forms = self.forms
        if "msgid_plural" not in self.strings:
            return [(self.strings["msgid"], forms)]
        return [(self.strings["msgid"], forms[:1]), (self.strings["msgid_plural"], forms[1:] or forms)]


class _Parser:
    """Collects the lines of a file into entries."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._line = 0
        self._forms = 0
        """Forms of a plural that the header states."""
        self._start = 0
        self._entry = Entry()
        self._keyword = ""
        self._begin = 0
        self._first_line = 0
        self._parts = list[bytes]()
        self._stop = 0

    def entries(self, lines: Iterable[bytes]) -> Iterator[Entry]:
        for line in lines:
            self._line += 1
            yield from self._read(line)
            self._start += len(line)
            if self._entry.start is not None and self._start - self._entry.start > MAX_UNIT_BYTES:
                self._fail(f"an entry of at most {MAX_UNIT_BYTES:,} bytes", "a longer one; split it")
        for entry in self._ended():
            self._check_forms(entry)
            yield entry

    def _read(self, line: bytes) -> Iterator[Entry]:
        content = line.removeprefix(b"\xef\xbb\xbf") if self._line == 1 else line
        begin = self._start + len(line) - len(content)
        text = content.rstrip(b"\r\n")
        begin += len(text) - len(text.lstrip())
        text = text.strip()
        if not text:
            if any(name.startswith("msgstr") for name in (*self._entry.strings, self._keyword)):
                yield from self._ended()
        elif text.startswith(b"#~|"):  # the earlier message of an obsolete entry
            return
        elif mark := _OBSOLETE.match(text):
            yield from self._string(text[mark.end() :], begin + mark.end(), obsolete=True)
        elif text.startswith(b"#"):
            if self._keyword:
                yield from self._ended()
            self._begin_entry()
            if text.startswith(b"#,"):
                self._flags(text, begin)
        else:
            yield from self._string(text, begin, obsolete=False)

    def _begin_entry(self) -> None:
        if self._entry.start is None:
            self._entry.start = self._start

    def _flags(self, text: bytes, begin: int) -> None:
        self._entry.fuzzy |= b"fuzzy" in [flag.strip() for flag in text[2:].split(b",")]
        if self._entry.flags is None:
            self._entry.flags = begin + 2

    def _string(self, text: bytes, begin: int, *, obsolete: bool) -> Iterator[Entry]:
        found = _LINE.fullmatch(text)
        if found is None:
            self._fail("a comment, or a keyword (msgid, msgstr, ...) with a string in quotation marks", repr(_shown(text)))
        keyword = (found[1] or b"").decode()
        if keyword and keyword in ("msgctxt", "msgid") and (keyword in self._entry.strings or self._keyword.startswith("msgstr")):
            yield from self._ended()
        self._begin_entry()
        if not keyword and not self._keyword:
            self._fail("msgid in front of the first string", repr(_shown(text)))
        if keyword:
            self._finish_string()
            if keyword in self._entry.strings:
                self._fail("each keyword once in an entry", f"{keyword} again")
            self._keyword = keyword
            self._begin = begin
            self._first_line = self._line
            self._parts = []
            self._entry.obsolete |= obsolete
        self._parts.append(found[2])
        self._stop = begin + len(text.rstrip())

    def _finish_string(self) -> None:
        if self._keyword:
            try:
                text = b"".join(map(_unescaped, self._parts)).decode("utf-8")
            except UnicodeDecodeError as error:
                self._line = self._first_line
                self._fail(
                    "UTF-8", f"the byte 0x{error.object[error.start]:02x} in {self._keyword}; convert it (msgconv -t UTF-8 FILE)"
                )
            self._entry.strings[self._keyword] = String(text, self._first_line, self._begin, self._stop)
        self._keyword = ""
        self._parts = []

    def _ended(self) -> Iterator[Entry]:
        """Yield the entry that has ended, if it has strings, and expect another one."""
        self._finish_string()
        entry, self._entry = self._entry, Entry()
        if not entry.strings:
            return
        if not entry.obsolete:
            for wanted in ("msgid", "msgstr[0]" if "msgid_plural" in entry.strings else "msgstr"):
                if wanted not in entry.strings:
                    self._line = max(string.line for string in entry.strings.values())
                    self._fail(f"an entry with {wanted}", f"one with {', '.join(entry.strings)}; the file may be cut off")
        if entry.is_header:
            self._check_encoding(entry)
            stated = _PLURAL_FORMS.search(entry.forms[0].text)
            self._forms = int(stated[1]) if stated else 0
        if "msgid" in entry.strings:
            yield entry

    def _check_forms(self, last: Entry) -> None:
        """Raise DocumentError if the last entry of a file lacks forms of its plural that the header states."""
        if "msgid_plural" in last.strings and not last.obsolete and len(last.forms) < self._forms:
            self._line = max(string.line for string in last.strings.values())
            self._fail(f"an entry with {self._forms} forms of its plural", f"{len(last.forms)}; the file may be cut off")

    def _check_encoding(self, header: Entry) -> None:
        found = _CHARSET.search(header.forms[0].text)
        if found and found[1].lower() not in _UTF8:
            self._line = header.line
            self._fail("charset=UTF-8", f"charset={found[1]}; convert it (msgconv -t UTF-8 FILE)")

    def _fail(self, expected: str, got: str) -> NoReturn:
        raise DocumentError(f"{self._name}, line {self._line}: expected {expected}, got {got}")


def _shown(text: bytes) -> str:
    return text[:60].decode("utf-8", "replace")


def _unescaped(text: bytes) -> bytes:
    return _ESCAPE.sub(_character, text) if b"\\" in text else text


def _character(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return bytes([int(code, 8) & 255]) if code[:1].isdigit() and code < b"8" else _ESCAPES.get(code, code)


def units(blocks: Iterable[bytes], name: str, languages: Languages | None) -> Iterator[Unit]:
    """Yield the units of a file, those that are not pairs with the reason; see the rules of this module.

    The language of the header may be that of the source, too: the sides are exchanged then. Without `languages` it is not compared.
    Raises DocumentError for a file that is no PO file, in another encoding, or in other languages.
    """
    seen = set[int]()
    swapped = False
    for entry in _Parser(name).entries(lines_of(blocks, name)):
        if entry.is_header:
            swapped = languages is not None and _is_swapped(entry, name, languages)
            continue
        known = len(seen)
        seen.add(hash(entry.key))
        repeated = known == len(seen) and not entry.obsolete
        for message, forms in entry.sides if entry.forms else [(entry.strings["msgid"], [])]:
            target = forms[-1].text if forms else ""
            sides = (target, message.text) if swapped else (message.text, target)
            yield Unit(message.line, *sides, _skipped(entry, repeated, target))


def _skipped(entry: Entry, repeated: bool, target: str) -> str:
    """Return the first reason that makes a message no pair; empty for a pair."""
    if entry.obsolete:
        return OBSOLETE
    if repeated:
        return REPEATED_ID
    if not target.strip():
        return UNTRANSLATED
    return FUZZY if entry.fuzzy else ""


def _is_swapped(header: Entry, name: str, languages: Languages) -> bool:
    found = _LANGUAGE.search(header.forms[0].text) if header.forms else None
    if not found or is_language(found[1], languages[1]):
        return False
    if is_language(found[1], languages[0]):
        return True
    raise DocumentError(
        f"{name}, line {header.line}: expected translations into {languages[1]}, got Language: {found[1]}; leave the file out, or "
        "correct its header"
    )


def languages_of(blocks: Iterable[bytes], name: str) -> list[str]:
    """Return the language that the header of a file states, that of the translations."""
    for entry in _Parser(name).entries(lines_of(blocks, name)):
        found = _LANGUAGE.search(entry.forms[0].text) if entry.is_header else None
        return [found[1]] if found else []
    return []


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the messages of a file. Raises DocumentError as `units` does, and for a file of the opposite direction."""
    found = list[Segment]()
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    for entry in _Parser(name).entries(lines_of([data], name)):
        if entry.is_header:
            if _is_swapped(entry, name, languages):
                raise DocumentError(
                    f"{name}, line {entry.line}: expected translations into {languages[1]}, got translations into {languages[0]}; "
                    "use a system of the opposite direction"
                )
        elif not entry.obsolete:
            sides = entry.sides if len(entry.forms) > 1 else entry.sides[-1:]
            found += [_segment(entry, message, forms, newline) for message, forms in sides]
    return found


def _segment(entry: Entry, message: String, forms: list[String], newline: bytes) -> Segment:
    """Return the segment of a message or plural. More than one form with one translation is marked, since some are wrong."""

    def write(translation: str, problem: str) -> list[Edit]:
        keywords = {id(string): keyword for keyword, string in entry.strings.items()}
        edits = [Edit(form.start, form.stop, _written(keywords[id(form)], translation, newline)) for form in forms]
        if len(forms) > 1 and not problem:
            problem = f"the forms 1 to {len(forms)} of the plural have one translation"
        return edits + (_marked(entry, problem, newline) if problem else [])

    translated = any(form.text.strip() for form in forms)
    return Segment(message.line, message.text, write, translated=translated)


def _marked(entry: Entry, problem: str, newline: bytes) -> list[Edit]:
    """Return the edits that mark an entry as fuzzy, and state the reason in a comment."""
    assert entry.start is not None  # it has strings
    edits = [Edit(entry.start, entry.start, f"# fewstep: {problem}".encode() + newline)]
    if entry.fuzzy:
        return edits
    if entry.flags is not None:
        return [*edits, Edit(entry.flags, entry.flags, b" fuzzy,")]
    first = min(string.start for string in entry.strings.values())
    return [*edits, Edit(first, first, b"#, fuzzy" + newline, 1)]


def _written(keyword: str, text: str, newline: bytes) -> bytes:
    """Return a string as gettext writes it: on one line, or wrapped behind an empty one."""
    lines = [line for paragraph in _PARAGRAPH.findall(text) for line in _wrapped(_escaped(paragraph))] or [""]
    quoted = [f'"{line}"' for line in lines]
    if len(quoted) > 1 or len(lines[0]) > WIDTH - len(keyword):
        quoted = ['""', *quoted]
    return newline.join(part.encode() for part in (f"{keyword} {quoted[0]}", *quoted[1:]))


def _escaped(text: str) -> str:
    return "".join(_WRITTEN.get(character, character) for character in text)


def _wrapped(text: str) -> Iterator[str]:
    """Yield the parts of an escaped text of at most `WIDTH` characters, which end behind spaces; longer words stay whole."""
    line = ""
    for word in re.findall(r"[^ ]* *", text):
        if line and len(line) + len(word) > WIDTH:
            yield line
            line = ""
        line += word
    if line:
        yield line
