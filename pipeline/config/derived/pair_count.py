"""The number of pairs of a training text as a config states it, counted in the files on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pipeline.config.texts import FORMATS, matching
from pipeline.config.tree import Node
from stages.artifacts import ExternalFile
from stages.errors import DataError

NAMED = ("sacrebleu", "mtdata", "opus")
"""Keys of text that is known by name, and counted only when it was downloaded."""


def count_pairs(text: Node) -> int:
    """Return the pairs of a text in its long form; 0 for values of a wrong shape, which the validation reports.

    Raises DataError for a part that cannot be counted: a missing file, or text that is not on this machine.
    """
    for key in NAMED:
        if key in text.map and text.map[key].value:
            raise DataError(f"text by name ({key}) is not on this machine")
    embedded = text.map["embedded"].value if "embedded" in text.map else 0
    found = embedded if isinstance(embedded, int) else 0
    return found + sum(_file_pairs(file, kind) for kind in FORMATS if kind != "target" for file in _files(text, kind))


def _files(text: Node, kind: str) -> Iterator[Node]:
    files = text.map[kind].value if kind in text.map else []
    yield from files if isinstance(files, list) else []


def _file_pairs(file: Node, kind: str) -> int:
    """Return the pairs of a file: a path, a pattern of paths, or a map of `path` or `url`."""
    path, member = (file.map[key].value if key in file.map else "" for key in ("path", "member"))
    if "url" in file.map:
        raise DataError(f"{file.map['url'].plain()} is not on this machine")
    path = path or file.value
    if not isinstance(path, str) or not isinstance(member, str):
        return 0
    return sum(_count(one, member, *_state(one), kind) for one in matching(Path(path)))


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=256)
def _count(path: Path, member: str, size: int, modified: int, kind: str) -> int:
    """Return the rows of a file, or of its member; `size` and `modified` are part of the key of the cache."""
    from stages.corpus.readers import READERS

    return READERS.get(kind, READERS["lines"]).rows(ExternalFile(path, "", member))
