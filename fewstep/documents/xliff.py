"""Files of XLIFF 1.2, 2.0 and 2.1: units with a source and a target.

| unit | pairs |
|---|---|
| `trans-unit` (1.2) or `segment` (2.x) with a target | one |
| without a target, or with the state `new` or `needs-translation` (1.2) | none, counted as `untranslated` |
| with another state that begins with `needs-` (1.2), or `initial` (2.x) | none, counted as `fuzzy` |
| with `translate="no"` | none, counted as `not_for_translation` |
| with the id of an earlier unit of its file | none, counted as `repeated_id` |

Suggestions (`alt-trans`, `mtc:match`) are not read, and marks of segments (`<mrk mtype="seg">`) are left out of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from fewstep.documents.document import (
    FUZZY,
    NOT_FOR_TRANSLATION,
    REPEATED_ID,
    UNTRANSLATED,
    DocumentError,
    Edit,
    Languages,
    Segment,
    Unit,
    indentation,
)
from fewstep.documents.elements import Element, Elements, as_utf8, in_utf8, tag_end
from fewstep.documents.markup import Inline, escaped_text, read_inline, restored
from fewstep.text.languages import is_language

__all__ = ["languages_of", "segments", "units"]

_CONTAINERS = ("xliff", "file", "group", "unit", "body")
"""Elements whose `translate` holds for what is in them."""
_TO_DO = ("new", "needs-translation")
_SEGMENT_MARK = re.compile(r"""<mrk\s[^>]*\bmtype\s*=\s*["']seg["'][^>]*>""")


class _Content(NamedTuple):
    """A source or a target with its bytes in the document."""

    raw: str
    start: int
    inner: int
    """The byte behind its start tag."""
    stop: int
    attributes: Mapping[str, str]


@dataclass
class _Translatable:
    """A `trans-unit` of XLIFF 1.2, or a `segment` of XLIFF 2 with what its unit has."""

    line: int
    start: int
    attributes: Mapping[str, str]
    version: int
    translate: bool
    swapped: bool
    """Whether the languages of the file are those of the config in the other direction."""
    source: _Content | None = None
    target: _Content | None = None
    seg_source: int | None = None
    """The byte behind `seg-source`, which stands between source and target."""
    repeated: bool = False
    notes: tuple[int, bool] = (0, False)
    """Where a note on its unit goes (2.x), and whether the unit has notes already."""

    @property
    def state(self) -> str:
        if self.version == 2:
            return self.attributes.get("state", "")
        return self.target.attributes.get("state", "") if self.target else ""

    @property
    def skipped(self) -> str:
        """The reason why it is no pair; empty for a pair."""
        if not self.translate:
            return NOT_FOR_TRANSLATION
        if self.repeated:
            return REPEATED_ID
        if self.target is None or self.state in _TO_DO or not _inline(self.target.raw).text.strip():
            return UNTRANSLATED
        return FUZZY if self.state.startswith("needs-") or self.state == "initial" else ""


@dataclass
class _Unit:
    """A `unit` of XLIFF 2, whose segments share its notes."""

    notes: tuple[int, bool] | None = None
    segments: list[_Translatable] = field(default_factory=list)


class _Parser:
    """Collects the elements of a file into what is translated in it."""

    def __init__(self, name: str, languages: Languages | None) -> None:
        self._name = name
        self._languages = languages
        self.elements = Elements(name)
        self._path = list[tuple[str, bool]]()
        """The open elements, each with whether it is to be translated."""
        self._version = 1
        self._prefix = ""
        self._default: tuple[str | None, str | None] = None, None
        self._swapped = False
        self._ids = set[int]()
        self._unit: _Unit | None = None
        self._found: _Translatable | None = None
        self._content: tuple[int, Mapping[str, str]] = 0, {}

    def translatables(self, blocks: Iterable[bytes]) -> Iterator[_Translatable]:
        for element in self.elements.read(blocks):
            name = element.name.removeprefix(self._prefix)
            if element.attributes is not None:
                self._begin(name, element, element.attributes)
            else:
                self._path.pop()
                yield from self._end(name, element)

    def _begin(self, name: str, element: Element, attributes: Mapping[str, str]) -> None:
        if not self._path:
            name = self._root(element, attributes)
        inherited = self._path[-1][1] if self._path else True
        stated = attributes.get("translate") if name in (*_CONTAINERS, "trans-unit") else None
        translate = inherited if stated is None else stated != "no"
        parent = self._path[-1][0] if self._path else ""
        self._path.append((name, translate))
        if name == "file":
            self._file(element, attributes)
        elif name == "unit" and self._version == 2:
            self._unit = _Unit()
            self.elements.keep(element.start)
        elif name == ("trans-unit" if self._version == 1 else "segment"):
            self._found = _Translatable(element.line, element.start, attributes, self._version, translate, self._swapped)
            if self._version == 1:
                self.elements.keep(element.start)
                self._found.repeated = self._is_repeated(attributes.get("id"))
        elif name in ("source", "target") and parent in ("trans-unit", "segment"):
            self._content = element.start, attributes
        if self._unit is not None and name in ("originalData", "segment", "ignorable") and self._unit.notes is None:
            self._unit.notes = element.start, False

    def _root(self, element: Element, attributes: Mapping[str, str]) -> str:
        prefix, colon, name = element.name.rpartition(":")
        if name != "xliff":
            self._fail(element, "the element xliff", f"{element.name}; it is no XLIFF file")
        self._prefix = prefix + colon
        version = attributes.get("version", "1.2")
        if version[:2] not in ("1.", "2."):
            self._fail(element, "XLIFF 1.2 or 2.x", f"version {version}; convert it")
        self._version = int(version[0])
        self._default = attributes.get("srcLang"), attributes.get("trgLang")
        return name

    def _file(self, element: Element, attributes: Mapping[str, str]) -> None:
        found = self._default
        if self._version == 1:
            found = attributes.get("source-language"), attributes.get("target-language")
        self._ids.clear()
        if self._languages is not None:
            self._swapped = self._is_swapped(element, found, self._languages)

    def _is_swapped(self, element: Element, found: tuple[str | None, str | None], languages: Languages) -> bool:
        for swapped, wanted in ((False, languages), (True, languages[::-1])):
            if all(code is None or is_language(code, one) for code, one in zip(found, wanted, strict=True)):
                return swapped
        shown = " and ".join(code or "no language" for code in found)
        remedy = "leave the file out, or correct the languages of the config"
        return self._fail(element, f"a file in {languages[0]} and {languages[1]}", f"{shown}; {remedy}")

    def _fail(self, element: Element, expected: str, got: str) -> NoReturn:
        raise DocumentError(f"{self._name}, line {element.line}: expected {expected}, got {got}")

    def _is_repeated(self, identifier: str | None) -> bool:
        if identifier is None:
            return False
        known = len(self._ids)
        self._ids.add(hash(identifier))
        return known == len(self._ids)

    def _end(self, name: str, element: Element) -> Iterator[_Translatable]:
        parent = self._path[-1][0] if self._path else ""
        found = self._found
        if found is not None and name in ("source", "target") and parent in ("trans-unit", "segment"):
            content = self._read(element)
            if name == "source":
                found.source = content
            else:
                found.target = content
        elif found is not None and name == "seg-source" and parent == "trans-unit":
            found.seg_source = self.elements.tag_end(element.start)
        elif name == "notes" and self._unit is not None and parent == "unit":
            self._unit.notes = element.start, True
        elif name == "trans-unit" and found is not None:
            self._found = None
            self.elements.keep(None)
            yield from [found] if found.source is not None else []
        elif name == "segment" and found is not None and self._unit is not None:
            self._unit.segments.append(found)
            self._found = None
        elif name == "unit" and self._unit is not None:
            unit, self._unit = self._unit, None
            for segment in unit.segments:
                segment.notes = unit.notes or (0, False)
            yield from (segment for segment in unit.segments if segment.source is not None)
            self.elements.keep(None)

    def _read(self, element: Element) -> _Content:
        elements, (start, attributes) = self.elements, self._content
        inner = elements.tag_end(start)
        if elements.is_empty(start):
            return _Content("", start, inner, inner, attributes)
        raw = elements.between(inner, element.start).decode("utf-8")
        return _Content(raw, start, inner, elements.tag_end(element.start), attributes)


def _inline(raw: str) -> Inline:
    """Return the text of a source or target, without marks of segments."""
    return read_inline(raw, ("mrk",) if _SEGMENT_MARK.search(raw) else ())


def units(blocks: Iterable[bytes], name: str, languages: Languages | None) -> Iterator[Unit]:
    """Yield the units of a file, those that are not pairs with the reason; see the rules of this module.

    A file of the opposite direction has its sides exchanged. Without `languages` they are not compared. Raises DocumentError for a
    document that is no XLIFF file, cannot be read, or is in other languages.
    """
    for found in _Parser(name, languages).translatables(as_utf8(blocks, name)):
        assert found.source is not None
        sides = [_inline(one.raw).text if one else "" for one in (found.source, found.target)]
        source, target = reversed(sides) if found.swapped else sides
        yield Unit(found.line, source, target, found.skipped)


def languages_of(blocks: Iterable[bytes], name: str) -> list[str]:
    """Return the languages that a file states, that of the source first."""
    for element in Elements(name).read(as_utf8(blocks, name)):
        attributes = element.attributes or {}
        for keys in (("srcLang", "trgLang"), ("source-language", "target-language")):
            if keys[0] in attributes:
                return [attributes[key] for key in keys if key in attributes]
    return []


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the units of a document in UTF-8. Raises DocumentError as `units` does, and for a file of the opposite direction."""
    found = list[Segment]()
    for one in _Parser(name, languages).translatables(in_utf8(data)):
        if one.swapped:
            raise DocumentError(
                f"{name}, line {one.line}: expected a file from {languages[0]} to {languages[1]}, got one of the opposite "
                "direction; use another system"
            )
        if one.translate and one.source is not None:
            found.append(_segment(data, one, one.source))
    return found


def _segment(data: bytes, found: _Translatable, source: _Content) -> Segment:
    inline = _inline(source.raw)

    def write(translation: str, problem: str) -> list[Edit]:
        content = source.raw if translation == inline.text else restored(translation, inline)
        edits = [_target(data, found, source, content, problem), *_state(data, found, problem)]
        return edits + (_note(data, found, source, problem) if problem else [])

    filled = found.target is not None and found.state not in _TO_DO and bool(_inline(found.target.raw).text.strip())
    return Segment(found.line, inline.text, write, inline.tags, filled)


def _target(data: bytes, found: _Translatable, source: _Content, content: str, problem: str) -> Edit:
    """Return the edit that writes the target: in place of the present one, or behind the source with its indentation."""
    prefix = _prefix(data, source)
    review = {"state": "needs-review-translation"} if found.version == 1 and problem else {}
    end = f"</{prefix}target>"
    if found.target is None:
        position = found.seg_source or source.stop
        gap = indentation(data, source.start).decode()
        return Edit(position, position, f"{gap}{_with(f'<{prefix}target>', review)}{content}{end}".encode())
    if found.version == 1 and not problem and found.state != "" and found.skipped:
        review = {"state": "translated"}
    begin = _with(data[found.target.start : found.target.inner].decode(), review)
    begin = f"{begin[:-2].rstrip()}>" if begin.endswith("/>") else begin
    return Edit(found.target.start, found.target.stop, f"{begin}{content}{end}".encode())


def _state(data: bytes, found: _Translatable, problem: str) -> list[Edit]:
    """Return the edit of the state of a segment of XLIFF 2, which has no state for a translation to be reviewed."""
    if found.version == 1 or not (problem or found.state == "initial"):
        return []
    stop = tag_end(data, found.start)
    changed = {"state": "translated"} | ({"subState": "fewstep:needs-review-translation"} if problem else {})
    return [Edit(found.start, stop, _with(data[found.start : stop].decode(), changed).encode())]


def _with(tag: str, attributes: Mapping[str, str]) -> str:
    """Return a start tag in which attributes have other values."""
    for name, value in attributes.items():
        tag, count = re.subn(rf"""(\s{name}\s*=\s*)(?:"[^"]*"|'[^']*')""", rf'\g<1>"{value}"', tag)
        if not count:
            end = "/>" if tag.endswith("/>") else ">"
            tag = f'{tag.removesuffix(end).rstrip()} {name}="{value}"{end}'
    return tag


def _note(data: bytes, found: _Translatable, source: _Content, problem: str) -> list[Edit]:
    """Return the edit that states why a translation is to be reviewed: a note behind the target (1.2), or on the unit (2.x)."""
    prefix = _prefix(data, source)
    text = escaped_text(problem)
    if found.version == 1:
        position = found.target.stop if found.target else found.seg_source or source.stop
        gap = indentation(data, source.start).decode()
        return [Edit(position, position, f'{gap}<{prefix}note from="fewstep">{text}</{prefix}note>'.encode())]
    position, has_notes = found.notes
    gap = indentation(data, position).decode()
    note = Edit(position, position, f'<{prefix}note category="fewstep">{text}</{prefix}note>{gap * has_notes}'.encode(), 1)
    if has_notes:
        return [note]
    begin = f"<{prefix}notes>"
    end = f"</{prefix}notes>{gap}"
    return [Edit(position, position, begin.encode()), note, Edit(position, position, end.encode(), 2)]


def _prefix(data: bytes, source: _Content) -> str:
    """Return the prefix of the names of elements."""
    return data[source.start + 1 : source.inner].partition(b"source")[0].decode()
