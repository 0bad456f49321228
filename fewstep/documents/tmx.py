"""Translation memories (TMX 1.4, and older versions): units with a variant for each language.

| unit | pairs |
|---|---|
| with both languages | one; of several variants of a language the first, but one with the code itself before others |
| without one of them | none, counted as `no_language` |
| with an empty target | none, counted as `untranslated` |

The codes `en` and `en-US` are one language, unless the config states a region. Ids of units need not be unique.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, NoReturn

from fewstep.documents.document import NO_LANGUAGE, UNTRANSLATED, DocumentError, Edit, Languages, Segment, Unit, indentation
from fewstep.documents.elements import Element, Elements, as_utf8, in_utf8
from fewstep.documents.markup import escaped_text, read_inline, restored, shortened_pair
from fewstep.text.languages import is_language

MAX_STATING_UNITS = 1000
"""Units whose languages are taken for those of a memory."""
MAX_NAMED = 10
"""Languages that an error lists."""


class Variant(NamedTuple):
    """The text of a unit in one language, with its bytes in the document."""

    language: str
    tag: str
    """The name of its attribute of language, as the document writes it."""
    raw: str
    start: int
    stop: int
    """The element `tuv`."""
    seg: tuple[int, int]
    """The element `seg`."""


@dataclass
class _TranslationUnit:
    line: int
    variants: list[Variant] = field(default_factory=list)

    def variant(self, language: str) -> Variant | None:
        """Return the variant of a language."""
        found = [one for one in self.variants if is_language(one.language, language)]
        exact = [one for one in found if one.language.lower().replace("_", "-") == language.lower().replace("_", "-")]
        return next(iter([*exact, *found]), None)


class _Parser:
    """Collects the elements of a memory into its units."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.elements = Elements(name)
        self._unit: _TranslationUnit | None = None
        self._path = list[str]()
        self._variant: tuple[str, str, int] = "", "", 0
        self._seg: tuple[int, int, str] | None = None

    def units(self, blocks: Iterable[bytes]) -> Iterator[_TranslationUnit]:
        for element in self.elements.read(blocks):
            if element.attributes is not None:
                self._begin(element)
                self._path.append(element.name)
                continue
            self._path.pop()
            if element.name == "tu" and self._unit is not None:
                unit, self._unit = self._unit, None
                yield unit
                self.elements.keep(None)
            elif self._unit is not None:
                self._end(element, self._unit)

    def _begin(self, element: Element) -> None:
        assert element.attributes is not None
        if not self._path and element.name != "tmx":
            self._fail(element, "the element tmx", f"{element.name}; it is no TMX file")
        if element.name == "tu":
            self._unit = _TranslationUnit(element.line)
            self.elements.keep(element.start)
        elif element.name == "tuv" and self._path[-1] == "tu":
            tag = "xml:lang" if "xml:lang" in element.attributes else "lang"
            if not element.attributes.get(tag):
                self._fail(element, "a tuv with xml:lang", "one without; add its language")
            self._variant = (element.attributes[tag], tag, element.start)
            self._seg = None
        elif element.name == "seg" and self._path[-1] == "tuv":
            self._seg = element.start, element.start, ""

    def _fail(self, element: Element, expected: str, got: str) -> NoReturn:
        raise DocumentError(f"{self.name}, line {element.line}: expected {expected}, got {got}")

    def _end(self, element: Element, unit: _TranslationUnit) -> None:
        elements = self.elements
        if element.name == "seg" and self._path[-1:] == ["tuv"] and self._seg:
            begin = self._seg[0]
            inner = elements.tag_end(begin)
            empty = elements.is_empty(begin)
            content = b"" if empty else elements.between(inner, element.start)
            self._seg = begin, inner if empty else elements.tag_end(element.start), content.decode("utf-8")
        elif element.name == "tuv" and self._path[-1:] == ["tu"] and self._seg:
            language, tag, start = self._variant
            begin, stop, raw = self._seg
            unit.variants.append(Variant(language, tag, raw, start, elements.tag_end(element.start), (begin, stop)))


def units(blocks: Iterable[bytes], name: str, languages: Languages | None) -> Iterator[Unit]:
    """Yield the units of a memory, those that are not pairs with the reason; see the rules of this module.

    Without `languages`, a pair is the first two variants. Raises DocumentError for a document that is no memory or cannot be read,
    and at its end for one without a unit in both languages.
    """
    both = False
    other = dict[str, None]()
    for unit in _Parser(name).units(as_utf8(blocks, name)):
        if languages is None:
            source, target = [*unit.variants, None, None][:2]
        else:
            source, target = (unit.variant(language) for language in languages)
        if source is None or target is None:
            if len(other) < MAX_NAMED:
                other.update(dict.fromkeys(variant.language for variant in unit.variants))
            yield Unit(unit.line, _text(source), _text(target), NO_LANGUAGE)
            continue
        both = True
        sides = shortened_pair(read_inline(source.raw), read_inline(target.raw))
        yield Unit(unit.line, *sides, "" if sides[1].strip() else UNTRANSLATED)
    if other and not both and languages is not None:
        raise DocumentError(
            f"{name}: expected units in {languages[0]} and {languages[1]}, got {', '.join(other)}; leave the file out, or correct "
            "the languages of the config"
        )


def _text(variant: Variant | None) -> str:
    return "" if variant is None else read_inline(variant.raw).text


def languages_of(blocks: Iterable[bytes], name: str) -> list[str]:
    """Return the languages of the first units of a memory, that of the source first."""
    units = islice(_Parser(name).units(as_utf8(blocks, name)), MAX_STATING_UNITS)
    return [*dict.fromkeys(variant.language for unit in units for variant in unit.variants)]


def segments(data: bytes, name: str, languages: Languages) -> list[Segment]:
    """Return the units of a memory in UTF-8 that have the language of the source. Raises DocumentError as `units` does."""
    found = [
        (unit, source, unit.variant(languages[1]))
        for unit in _Parser(name).units(in_utf8(data))
        if (source := unit.variant(languages[0])) is not None
    ]
    code = next((target.language for _, _, target in found if target), languages[1])
    return [_segment(data, unit.line, source, target, code) for unit, source, target in found]


def _segment(data: bytes, line: int, source: Variant, target: Variant | None, code: str) -> Segment:
    inline = read_inline(source.raw)

    def write(translation: str, problem: str) -> list[Edit]:
        note = f"<note>fewstep: {escaped_text(problem)}</note>" if problem else ""
        content = source.raw if translation == inline.text else restored(translation, inline)
        seg = f"{note}<seg>{content}</seg>"
        if target is not None:
            return [Edit(*target.seg, seg.encode())]
        gap = indentation(data, source.start).decode()
        return [Edit(source.stop, source.stop, f'{gap}<tuv {source.tag}="{escaped_text(code)}">{seg}</tuv>'.encode())]

    return Segment(line, inline.text, write, inline.tags, target is not None and bool(_text(target).strip()))
