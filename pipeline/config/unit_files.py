"""Files of units with both sides (PO, TMX, XLIFF) as the text of a first config."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewstep.access import name_problem
from fewstep.documents.document import FORMATS
from fewstep.text.languages import base_code
from stages.artifacts import ExternalFile
from stages.corpus.packed import SUFFIXES
from stages.corpus.readers import UNITS
from stages.errors import DataError

MAX_SHOWN = 8
"""Languages that an error names."""
SOURCE = "en"
"""The language of the messages of gettext, whose files state that of the translations alone."""


def unit_format(path: Path) -> str | None:
    """Return the format of a file of units, which may be compressed, from its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in SUFFIXES:
        suffixes.pop()
    return FORMATS.get(suffixes[-1]) if suffixes else None


@dataclass(frozen=True)
class UnitFiles:
    """A file of units, or all such files in a folder."""

    place: Path
    format: str
    files: tuple[Path, ...]

    @staticmethod
    def of(place: Path) -> UnitFiles:
        """Return the files. Raises DataError for a place without such files, with files of several formats, and with names that
        cannot be written into a config or a message."""
        files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        found = {path: kind for path in files if (kind := unit_format(path))}
        if problem := next((f"{str(path)!a}: {problem}" for path in found if (problem := name_problem(path))), None):
            raise DataError(f"init: {problem}")
        if len(kinds := Counter(found.values())) != 1:
            shown = ", ".join(f"{count} of {kind}" for kind, count in kinds.items()) or "none"
            raise DataError(
                f"init: expected files of one format ({', '.join(FORMATS)}) for a single argument, got {shown} in {place}; name "
                "such a file or a folder of them, or two files with one sentence a line"
            )
        return UnitFiles(place, next(iter(kinds)), tuple(found))

    def languages(self) -> tuple[str, str]:
        """Return the languages that the first file states, without their regions. Raises DataError unless there are two."""
        path = self.files[0]
        stated = [*dict.fromkeys(map(base_code, UNITS[self.format].languages(ExternalFile(path, ""))))]
        stated = [SOURCE, *stated] if self.format == "po" else stated
        if len(stated) < 2:
            got = " ".join(stated) or "none"
            raise DataError(f"{path}: expected a file that states its languages, got {got}; give --languages en fr")
        if len(stated) > 2:
            pair = " ".join(stated[:2])
            got = " ".join(stated[:MAX_SHOWN]) + (f" and {len(stated) - MAX_SHOWN:,} others" if len(stated) > MAX_SHOWN else "")
            raise DataError(f"{path}: expected a file in two languages, got {got}; give --languages {pair}, or another pair")
        return stated[0], stated[1]

    def read(self, languages: tuple[str, str]) -> UnitText:
        """Return the text of the files. Raises DataError for a file that cannot be read or is in other languages."""
        reader = UNITS[self.format]
        root = self.place if self.place.is_dir() else self.place.parent
        pairs = {path.relative_to(root).as_posix(): reader.rows(ExternalFile(path, ""), languages) for path in self.files}
        return UnitText(self, root, languages, pairs)


@dataclass(frozen=True)
class UnitText:
    """The text of files of units in two languages."""

    files: UnitFiles
    root: Path
    languages: tuple[str, str]
    pairs: dict[str, int]
    """The pairs of each file, by its path in `root`."""

    def __str__(self) -> str:
        return str(self.files.place)

    def size(self) -> int:
        """Return the number of pairs."""
        return sum(self.pairs.values())

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the pairs."""
        reader = UNITS[self.files.format]
        for path in self.files.files:
            for unit in reader.units(ExternalFile(path, ""), self.languages):
                if not unit.skipped:
                    yield unit.source, unit.target

    def entry(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the text of a config: some of the files, or all by a pattern."""
        root = self.root.absolute()
        endings = {"".join(path.suffixes[-1:]) for path in self.files.files}
        if names is None and self.files.place.is_dir() and len(endings) == 1 and not glob.has_magic(str(root)):
            return {self.files.format: str(root / "**" / f"*{endings.pop()}")}
        found = [str(root / name) for name in (self.pairs if names is None else names)]
        return {self.files.format: found[0] if len(found) == 1 else found}
