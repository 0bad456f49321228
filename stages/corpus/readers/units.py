"""Files of units with both sides: messages of gettext and translation memories, whose text is not in lines.

Such a file is read from its beginning once, by one worker, into a copy with a unit on each line: the line of the file at which it
begins, the reason why it is no pair, source and target, separated by tabs. White space that would end a line or a column is a
space there, so that a segment of several lines is one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

import durable
from fewstep.documents import po, tmx, xliff
from fewstep.documents.document import DocumentError, Languages, Unit
from fewstep.streams import MAX_LINE_BYTES
from stages.artifacts import ExternalFile
from stages.context import Context
from stages.corpus.limits import check_line
from stages.corpus.lines import blocks_of
from stages.corpus.readers.lines import Lines, lines_of
from stages.corpus.readers.reader import SKIPPED, IndexedFile
from stages.errors import DataError, unwritable


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
_SEPARATOR = re.compile(r"[\t\n\r]")


@dataclass(frozen=True)
class Units(Lines):
    """Files of units in a format of `BILINGUAL`."""

    format: str

    def packed(self, file: ExternalFile) -> bool:
        """Return True: a unit can only be found from the beginning of its file."""
        return True

    def rows(self, file: ExternalFile, languages: Languages | None) -> int:
        """Return the number of units that are pairs."""
        return sum(not unit.skipped for unit in self.units(file, languages))

    def unpack(self, file: ExternalFile, target: Path, languages: Languages, context: Context) -> None:
        """Write the copy of a file."""
        temporary = context.temporary(target)
        try:
            durable.make_directory(target.parent)
            with temporary.open("w", encoding="utf-8", newline="\n") as out:
                for unit in self.units(file, languages):
                    out.write(_line(file, unit))
            durable.rename(temporary, target)
        except OSError as error:
            raise unwritable(target, error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, file: IndexedFile, start: int, stop: int, side: str, languages: Languages) -> Iterator[pa.Table]:
        """Yield the units `start` to `stop` with the reasons why they are no pairs."""
        for cells in self._cells(file, start, stop):
            skipped, source, target = (pc.list_element(cells, number) for number in (1, 2, 3))
            yield pa.table({"source": source, "target": target, SKIPPED: skipped})

    def line(self, file: IndexedFile, row: int) -> int:
        """Return the line of the file at which a unit begins."""
        (cells,) = self._cells(file, row, row + 1)
        return int(cells[0][0].as_py())

    def _cells(self, file: IndexedFile, start: int, stop: int) -> Iterator[pa.ListArray]:
        for lines in lines_of(file, start, stop):
            yield pc.split_pattern(pc.utf8_rtrim(lines, "\n"), "\t")

    def units(self, file: ExternalFile, languages: Languages | None) -> Iterator[Unit]:
        """Yield the units of a file; without languages, those of any two. Raises DataError for a file that cannot be read."""
        name = str(file.path / file.member)
        try:
            yield from BILINGUAL[self.format].units(blocks_of(file.path, file.member, wide=True), name, languages)
        except DocumentError as error:
            raise DataError(str(error)) from error

    def languages(self, file: ExternalFile) -> list[str]:
        """Return the languages that a file states. Raises DataError for a file that cannot be read."""
        name = str(file.path / file.member)
        try:
            return BILINGUAL[self.format].languages(blocks_of(file.path, file.member, wide=True), name)
        except DocumentError as error:
            raise DataError(str(error)) from error


def _line(file: ExternalFile, unit: Unit) -> str:
    """Return the line of a unit. Raises DataError for one that is too long."""
    source, target = (_SEPARATOR.sub(" ", side) for side in (unit.source, unit.target))
    line = f"{unit.line}\t{unit.skipped}\t{source}\t{target}\n"
    if len(line) * 4 > MAX_LINE_BYTES:  # bytes of a character
        check_line(file.path / file.member, unit.line, len(line.encode()))
    return line
