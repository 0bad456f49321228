"""Glossaries: terms that have to be translated as stated.

| rule | |
|---|---|
| file | UTF-8, a line for each term: the source, a tab, and the target; blank lines are skipped |
| words | a term begins and ends where no letter, digit or `_` goes on; characters of scripts without spaces stand for themselves |
| letters | a term in lower case is found in any case; one with a capital letter as it is written, and before one in lower case |
| several | from left to right, the longest term at each place; terms do not overlap |
| kept | nothing inside of placeholders (`fewstep.text.placeholders`) and backquotes is a term |

Other forms of a word, such as plurals, are terms of their own.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fewstep.access import content_of
from fewstep.bounded_files import MAX_VOCABULARY_BYTES
from fewstep.text.languages import UNSPACED
from fewstep.text.normalise import normalise
from fewstep.text.terms import Term, kept_characters

MAX_UNITS, MAX_CHARACTERS = 128, 1000
"""Words of a term, and characters of a term or its translation: as many steps are taken at each word of a text."""

_UNIT = re.compile(rf"[^\W{UNSPACED}]+|\S")
"""A part of a term: a word of a script with spaces, or another character."""


class GlossaryError(ValueError):
    """A glossary that cannot be used."""


class _Unit(NamedTuple):
    text: str
    start: int
    spaced: bool
    """Whether white space stands in front of it."""


class _Branch:
    """Terms that begin with the same units."""

    def __init__(self) -> None:
        self.branches: dict[tuple[str, bool], _Branch] = {}
        """The terms that go on, by the next unit and whether white space stands in front of it."""
        self.target = ""
        """The translation of the term that ends here; empty without one."""

    def add(self, units: Iterable[_Unit], target: str) -> None:
        """Add a term, unless it is there."""
        branch = self
        for number, unit in enumerate(units):
            branch = branch.branches.setdefault((unit.text, number > 0 and unit.spaced), _Branch())
        branch.target = branch.target or target

    def found(self, keys: Iterator[tuple[str, bool]]) -> Iterator[tuple[int, str]]:
        """Yield the numbers of units of the terms that a text has at a place, shortest first, and their translations."""
        branch: _Branch | None = self
        for number, key in enumerate(keys, 1):
            if branch is None or (branch := branch.branches.get(key)) is None:
                return
            if branch.target:
                yield number, branch.target


@dataclass(frozen=True)
class Glossary:
    """Pairs of a source term and its translation."""

    terms: tuple[tuple[str, str], ...]

    @staticmethod
    def of(pairs: Iterable[Sequence[str]], places: Sequence[str] = ()) -> Glossary:
        """Return the glossary of pairs; pairs that occur twice are one. `places` name the pairs in errors.

        Raises GlossaryError for an empty term or a long one, and for one with two translations.
        """
        found, at = dict[str, str](), dict[str, str]()
        for number, pair in enumerate(pairs):
            place = places[number] if places else f"glossary[{number}]"
            if len(pair) != 2:
                raise GlossaryError(f"{place}: expected a term and its translation, got {len(pair)} parts")
            source, target = (normalise(side) for side in pair)
            if max(len(source), len(target)) > MAX_CHARACTERS or sum(1 for _ in _units(source)) > MAX_UNITS:
                raise GlossaryError(
                    f"{place}: expected a term of at most {MAX_UNITS} words and {MAX_CHARACTERS:,} characters on each side, got a "
                    "longer one; remove it or shorten it"
                )
            if not _UNIT.search(source) or not target:
                raise GlossaryError(f"{place}: expected a term and its translation, got an empty one; remove it or complete it")
            if found.setdefault(source, target) != target:
                raise GlossaryError(
                    f"{place}: expected one translation of {source!r}, got {target!r}, and {found[source]!r} in {at[source]}; "
                    "remove one of them"
                )
            at.setdefault(source, place)
        return Glossary(tuple(found.items()))

    @cached_property
    def _branches(self) -> tuple[_Branch, _Branch]:
        """The terms that are found as they are written, and those in any case."""
        found = _Branch(), _Branch()
        for source, target in self.terms:
            exact = source != source.lower()
            found[not exact].add(_units(source if exact else source.casefold()), target)
        return found

    def find(self, text: str) -> Iterator[Term]:
        """Yield the terms of a text in order."""
        kept = kept_characters(text)
        position = 0
        units = list(_units(text))
        for number, unit in enumerate(units):
            if unit.start < position:
                continue
            for count, target in self._at(units, number):
                last = units[number + count - 1]
                end = last.start + len(last.text)
                if 1 not in kept[unit.start : end]:
                    yield Term(unit.start, end, target)
                    position = end
                    break

    def _at(self, units: Sequence[_Unit], number: int) -> list[tuple[int, str]]:
        """Return the terms at a unit of a text, the longest first, of equally long ones that as it is written."""
        exact, folded = self._branches
        rest = range(number, min(len(units), number + MAX_UNITS))
        found = list(exact.found((units[at].text, at > number and units[at].spaced) for at in rest))
        found += folded.found((units[at].text.casefold(), at > number and units[at].spaced) for at in rest)
        return sorted(found, key=lambda one: -one[0])

    def honoured(self, source: str, output: str) -> tuple[int, int]:
        """Return how many terms a source has, and how many of them its translation has as stated, whatever else it has."""
        wanted = Counter(term.target for term in self.find(source))
        if not wanted:
            return 0, 0
        written = Counter(term.target for term in self._targets.find(output))
        return wanted.total(), (wanted & written).total()

    @cached_property
    def _targets(self) -> Glossary:
        """The translations, each as a term that stands for itself."""
        return Glossary(tuple((target, target) for target in dict.fromkeys(target for _, target in self.terms)))


def _units(text: str) -> Iterator[_Unit]:
    for one in _UNIT.finditer(text):
        yield _Unit(one[0], one.start(), one.start() > 0 and text[one.start() - 1].isspace())


def read_glossary(path: str | os.PathLike[str]) -> Glossary:
    """Return the glossary in a file.

    Raises GlossaryError, with the line, for a file that cannot be read, is not UTF-8, has no terms or a line without exactly two
    columns, and for what `Glossary.of` refuses.
    """
    path = Path(path)
    try:
        content = content_of(path, MAX_VOCABULARY_BYTES)
        if len(content) > MAX_VOCABULARY_BYTES:
            raise GlossaryError(f"{path}: expected a glossary of at most {MAX_VOCABULARY_BYTES:,} bytes, got more; divide it")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise GlossaryError(f"{path}: expected a glossary, got {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise GlossaryError(f"{path}: expected UTF-8, got the byte 0x{error.object[error.start]:02x}; convert the file") from error
    return parse_glossary(text, str(path))


def parse_glossary(text: str, name: str) -> Glossary:
    """Return the glossary that a text holds, as in a file. Raises GlossaryError as `read_glossary` does."""
    lines = [(number, line) for number, line in enumerate(re.split("\r?\n|\r", text), 1) if line.strip()]
    rows = [line.split("\t") for _, line in lines]
    for (number, _), row in zip(lines, rows, strict=True):
        if len(row) != 2:
            raise GlossaryError(f"{name}, line {number}: expected a term, a tab and its translation, got {len(row)} columns")
    if not rows:
        raise GlossaryError(f"{name}: expected terms, got none")
    return Glossary.of(rows, [f"{name}, line {number}" for number, _ in lines])
