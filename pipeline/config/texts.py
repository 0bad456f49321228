"""Parallel text in a config: files, URLs, and data sets by name."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from fewstep.access import access_problem, name_problem
from fewstep.config.bounds import Ge
from pipeline.store.downloads import RemoteFile
from stages.errors import DataError

MAX_VISITED = 100_000
"""Files and folders that are looked at for one pattern."""
MAX_VISITED_IN_ALL = 1_000_000
"""The same for all patterns of a config."""
COLUMNS = 2
"""Number of columns of a pair."""


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """A file on this machine of which a member or certain columns are read."""

    path: Path
    """Its path."""
    member: str = ""
    """File inside this archive (zip, tar, tar.gz, tgz) that is read. Nothing is extracted. Empty: the file is no archive."""
    columns: tuple[str | int, ...] = ()
    """The columns of source and target: names for Parquet (`translation.de` for a field of a struct), numbers from 1 for tsv."""
    licence: str = ""
    """Its licence, such as CC-BY-4.0, which manifests and the report state. Empty: unknown."""


def chosen_by(**kinds: type) -> Discriminator:
    """Return a choice of types: the type of `kinds` whose key a map has, or the type tagged `<other>` for any other value."""

    def tag(value: Any) -> str:
        for key, kind in kinds.items():
            if key in value if isinstance(value, Mapping) else isinstance(value, kind):
                return f"<{kind.__name__}>"
        return "<other>"

    return Discriminator(tag)


File = Annotated[
    Annotated[RemoteFile, Tag("<RemoteFile>")] | Annotated[LocalFile, Tag("<LocalFile>")] | Annotated[Path, Tag("<other>")],
    chosen_by(url=RemoteFile, path=LocalFile),
]


@dataclass(frozen=True, kw_only=True)
class PairFiles:
    """Parallel text in files. Several formats are joined in the order of the keys. A single file may stand for a list of one.

    Files are plain text, or compressed by gzip, zstd, bzip2 or xz, UTF-8: paths, patterns of paths such as `part-*.en.zst` (all
    files that match, sorted by name), URLs, `hf:ORG/NAME@REVISION/PATH` for files of a data set on the Hugging Face Hub, or maps of
    `url` or `path` with `sha256`, `member` and `columns`.
    """

    source: tuple[File, ...] = ()
    """Files of the source side, one sentence or document a line."""
    target: tuple[File, ...] = ()
    """Files of the target side, line by line the translations or summaries of `source`."""
    tsv: tuple[File, ...] = ()
    """Files of two columns, source and target, separated by a tab; or of more columns, with `columns`."""
    parquet: tuple[File, ...] = ()
    """Parquet files with text columns `source` and `target`, with columns named like the languages, or with `columns`."""
    po: tuple[File, ...] = ()
    """Files of GNU gettext (`locale/**/*.po`): messages with translations that are neither fuzzy nor obsolete."""
    tmx: tuple[File, ...] = ()
    """Translation memories (TMX): units that have both languages."""
    xliff: tuple[File, ...] = ()
    """Files of XLIFF 1.2 and 2.x: units with targets that need no review."""


FORMATS = tuple(field.name for field in fields(PairFiles))
"""The keys of `PairFiles`."""

PAIR_FORMATS = tuple(name for name in FORMATS if name not in ("source", "target"))
"""The keys of formats with both sides in a file."""

COLUMN_TYPES: dict[str, type[int | str]] = {"tsv": int, "parquet": str}
"""The keys of formats with columns, with the type of what `columns` states."""


@dataclass(frozen=True, kw_only=True)
class VocabularyFiles:
    """A vocabulary that was trained elsewhere: SentencePiece models, and dictionaries of fairseq that number their pieces.

    Text is split into the same pieces as with these files. BPE codes of subword-nmt and fastBPE are refused.
    """

    source_pieces: File
    """SentencePiece model of the source side."""
    target_pieces: File | None = None
    """SentencePiece model of the target side. Empty: that of the source."""
    source_dictionary: File | None = None
    """Dictionary of fairseq of the source side (`dict.en.txt`). Empty: the pieces keep the order of the models."""
    target_dictionary: File | None = None
    """Dictionary of the target side. Empty: that of the source, so that both sides have one vocabulary. Without dictionaries they
    have one vocabulary if they have one model."""


VOCABULARY_FILES = tuple(field.name for field in fields(VocabularyFiles))
"""The keys of `VocabularyFiles`."""


@dataclass(frozen=True, kw_only=True)
class VocabularyDictionaries:
    """Dictionaries of fairseq for text that is split already: its tokens are separated by spaces, and each token of the training
    text has to be in them."""

    source_dictionary: File
    """Dictionary of the source side (`dict.en.txt`)."""
    target_dictionary: File | None = None
    """Dictionary of the target side. Empty: that of the source, so that both sides have one vocabulary."""


@dataclass(frozen=True, kw_only=True)
class SacrebleuText:
    """A test set that the package sacrebleu knows by name, in the languages of the config."""

    name: str
    """Name as in `sacrebleu --list`, such as `wmt14/full`."""
    sha256: tuple[str, ...] = ()
    """Digests of the files that sacrebleu downloads for it, as `fewstep data pin` prints them. Empty: only sacrebleu's own MD5 is
    compared."""


@dataclass(frozen=True, kw_only=True)
class TextConfig(PairFiles):
    """One parallel text: from the embedded corpus, by a name of sacrebleu, or of files and other named data sets, which are joined.

    Text of several kinds is joined in the order of the keys, source and target first; data sets of `mtdata` and `opus` come after
    files of their format.
    """

    embedded: Annotated[int, Ge(0)] = 0
    """Pairs drawn from the embedded corpus of the task (English-German sentences, or English documents with summaries); 0: none."""
    sacrebleu: SacrebleuText | None = None
    """Test set of sacreBLEU in these languages, with all of its references: its name, or a map of `name` and `sha256`."""
    mtdata: tuple[str, ...] = ()
    """Data sets by the ids of mtdata, `Group-name-version-lang1-lang2`, in either direction (package mtdata)."""
    opus: tuple[str, ...] = ()
    """Corpora of OPUS, `Corpus/version`, such as `News-Commentary/v16`; `Corpus/version/l1-l2` where OPUS writes the languages
    differently."""
    references: tuple[tuple[File, ...], ...] = ()
    """Further references of a test set, each as a list of files like `target`."""


@dataclass(frozen=True, kw_only=True)
class DistilledText(PairFiles):
    """Text that was distilled elsewhere: the targets are a teacher's translations.

    Filters and the removal of test sentences apply to it as to the training text, whose sources it need not share.
    """


@dataclass
class Walk:
    """The number of files that patterns have looked at so far."""

    visited: int = 0


def matching(path: Path, walk: Walk) -> list[Path]:
    """Return the files that match a pattern (`*`, `?`, `[...]`, `**`), sorted by name, or the path itself if it is no pattern.

    A file whose own name has such characters is taken for itself. Raises DataError also for a pattern that leads through more than
    MAX_VISITED files and folders, or `walk` through more than MAX_VISITED_IN_ALL.
    """
    try:
        if not glob.has_magic(str(path)) or path.exists():
            return [path]
        folder, parts = (Path(path.anchor), path.parts[1:]) if path.anchor else (Path(), path.parts)
        found = sorted(set(_Pattern(path, walk).matches(folder, parts)))
        files = [match for match in found if not match.is_dir()]
    except PermissionError as error:
        place = str(error.filename or path)
        raise DataError(("" if place == str(path) else f"{path}: ") + access_problem(place, error)) from error
    if problem := next((f"{str(file)!a}: {problem}" for file in files if (problem := name_problem(file))), None):
        raise DataError(f"{path}: {problem}")
    if not files:
        raise DataError(f"{path}: expected files that match the pattern, got none; check the path in the config")
    return files


class _Pattern:
    """The search for the files of one pattern, which counts what it looks at: `glob` would walk a whole disk."""

    def __init__(self, pattern: Path, walk: Walk) -> None:
        self._pattern = pattern
        self._visited = 0
        self._walk = walk

    def matches(self, folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
        """Yield what matches the parts of a pattern in a folder, in the way of `glob.glob`. `**` does not follow links."""
        part, rest = parts[0], parts[1:]
        if part == "**":
            yield from self.matches(folder, rest or ("*",))
            for name in self._names(folder, part):
                if (below := folder / name).is_dir() and not below.is_symlink():
                    yield from self.matches(below, parts)
            return
        for name in self._names(folder, part) if glob.has_magic(part) else (part,):
            found = folder / name
            if not rest and os.path.lexists(found):
                yield found
            elif rest and found.is_dir():
                yield from self.matches(found, rest)

    def _names(self, folder: Path, part: str) -> list[str]:
        try:
            names = os.listdir(folder)
        except PermissionError:  # files in it would be left out in silence
            raise
        except OSError:  # it has just been removed
            return []
        self._visited += len(names)
        if self._visited > MAX_VISITED:
            raise DataError(
                f"{self._pattern}: expected a pattern that leads through at most {MAX_VISITED:,} files and folders, got one that "
                "leads through more; begin it with the folder of the files"
            )
        self._walk.visited += len(names)
        if self._walk.visited > MAX_VISITED_IN_ALL:
            raise DataError(
                f"{self._pattern}: expected patterns that together lead through at most {MAX_VISITED_IN_ALL:,} files and folders, "
                "got ones that lead through more; begin them with the folders of the files"
            )
        return [name for name in names if fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))]
