"""The formats whose units have both sides, and can therefore be read as parallel text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fewstep.documents import po, tmx, xliff
from fewstep.documents.document import Languages, Unit


class Bilingual(NamedTuple):
    """The functions of a format. All take blocks of a file and its name in errors, and raise DocumentError."""

    units: Callable[[Iterable[bytes], str, Languages | None], Iterator[Unit]]
    """Yield the units of a file in two languages; without languages, in any two."""
    languages: Callable[[Iterable[bytes], str], list[str]]
    """Return the languages that a file states, in the order of its sides."""


BILINGUAL = {
    "po": Bilingual(po.units, po.languages_of),
    "tmx": Bilingual(tmx.units, tmx.languages_of),
    "xliff": Bilingual(xliff.units, xliff.languages_of),
}
"""Formats by the keys of configs."""
