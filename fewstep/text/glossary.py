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

from fewstep.text.languages import UNSPACED
from fewstep.text.normalise import normalise
from fewstep.text.terms import Term, kept_spans

__all__ = ["Glossary", "GlossaryError", "read_glossary"]

_UNIT = re.compile(rf"[^\W{UNSPACED}]+|\S")
"""A part of a term: a word of a script with spaces, or another character."""


class GlossaryError(ValueError):
    """A glossary that cannot be used."""


class _Unit(NamedTuple):
    text: str
    start: int
    spaced: bool
    """Whether white space stands in front of it."""

    def is_for(self, other: _Unit, first: bool, exact: bool) -> bool:
        """Return whether this unit of a term is that of a text."""
        same = self.text == other.text if exact else self.text == other.text.casefold()
        return same and (first or self.spaced == other.spaced)


class _Entry(NamedTuple):
    units: list[_Unit]
    exact: bool
    """Whether the term is found only as it is written."""
    target: str


@dataclass(frozen=True)
class Glossary:
    """Pairs of a source term and its translation."""

    terms: tuple[tuple[str, str], ...]

    @staticmethod
    def of(pairs: Iterable[Sequence[str]], places: Sequence[str] = ()) -> Glossary:
        """Return the glossary of pairs; pairs that occur twice are one. `places` name the pairs in errors.

        Raises GlossaryError for an empty term, and for one with two translations.
        """
        found, at = dict[str, str](), dict[str, str]()
        for number, pair in enumerate(pairs):
            place = places[number] if places else f"glossary[{number}]"
            if len(pair) != 2:
                raise GlossaryError(f"{place}: expected a term and its translation, got {len(pair)} parts")
            source, target = (normalise(side) for side in pair)
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
    def _entries(self) -> dict[str, list[_Entry]]:
        """The terms by their first unit, the longest first."""
        found = dict[str, list[_Entry]]()
        for source, target in self.terms:
            exact = source != source.lower()
            units = list(_units(source if exact else source.casefold()))
            found.setdefault(units[0].text.casefold(), []).append(_Entry(units, exact, target))
        for entries in found.values():
            entries.sort(key=lambda entry: (-len(entry.units), not entry.exact))
        return found

    def find(self, text: str) -> Iterator[Term]:
        """Yield the terms of a text in order."""
        kept = list(kept_spans(text))
        position = 0
        units = list(_units(text))
        for number, unit in enumerate(units):
            if unit.start < position:
                continue
            for entry in self._entries.get(unit.text.casefold(), ()):
                inside = units[number : number + len(entry.units)]
                if len(inside) < len(entry.units) or not all(
                    own.is_for(other, at == 0, entry.exact) for at, (own, other) in enumerate(zip(entry.units, inside, strict=True))
                ):
                    continue
                end = inside[-1].start + len(inside[-1].text)
                if not any(start < end and unit.start < stop for start, stop in kept):
                    yield Term(unit.start, end, entry.target)
                    position = end
                    break

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
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise GlossaryError(f"{path}: expected a glossary, got {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise GlossaryError(f"{path}: expected UTF-8, got the byte 0x{error.object[error.start]:02x}; convert the file") from error
    return parse_glossary(text, str(path))


def parse_glossary(text: str, name: str) -> Glossary:
    """Return the glossary that a text holds, as in a file. Raises GlossaryError as `read_glossary` does."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    rows = [line.split("\t") for _, line in lines]
    for (number, _), row in zip(lines, rows, strict=True):
        if len(row) != 2:
            raise GlossaryError(f"{name}, line {number}: expected a term, a tab and its translation, got {len(row)} columns")
    if not rows:
        raise GlossaryError(f"{name}: expected terms, got none")
    return Glossary.of(rows, [f"{name}, line {number}" for number, _ in lines])
