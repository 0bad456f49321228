"""Names of files in a directory that came from elsewhere: none of them may lead out of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

PLAIN = re.compile(r"(?:\w[\w.-]{0,99}/){0,9}\w[\w.-]{0,99}", re.ASCII)
"""Names that need no further check, as almost all names are."""

MAX_COMPONENT = 255
"""Bytes of a file name (`NAME_MAX` of Linux)."""
MAX_NAME = 4095
"""Bytes of a path (`PATH_MAX` of Linux)."""


def names_problem(directory: Path, names: Iterable[object], is_link: Callable[[str], bool] | None = None) -> str | None:
    """Return why these are no acceptable names of files below `directory`, or None.

    A name is relative, in its shortest form, without `..`, neither it nor a folder on the way is a link, and no name is that of a
    folder on the way to another.

    `is_link` says whether a name is that of a link, for callers that have looked at the files.
    """
    is_link = is_link or (lambda name: (directory / name).is_symlink())
    folders: set[str] = set()
    seen = set[str]()
    for name in names:
        if problem := form_problem(name) or _link_problem(directory, str(name), folders):
            return problem
        if is_link(str(name)):
            return _link(str(name))
        seen.add(str(name))
    if both := seen & folders:
        return f"expected names of files, got {min(both)!r:.80}, which is also the folder of another"
    return None


def form_problem(name: object) -> str | None:
    """Return why `name` is not the relative name of a file, in its shortest form and without `..`, or None."""
    if isinstance(name, str) and PLAIN.fullmatch(name):
        return None
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= MAX_NAME:
        return f"expected the name of a file, got {name!r:.80}"
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or max(len(part.encode()) for part in parts) > MAX_COMPONENT:
        return f"expected the relative name of a file below the directory, got {name!r:.80}"
    return None


def _link_problem(directory: Path, name: str, folders: set[str]) -> str | None:
    """Return a problem if a folder on the way, which is not among `folders`, is a link. Add the folders of the name to them."""
    if name.rpartition("/")[0] in folders:
        return None
    end = name.find("/")
    while end >= 0:
        if (directory / (folder := name[:end])).is_symlink():
            return _link(folder)
        folders.add(folder)
        end = name.find("/", end + 1)
    return None


def _link(name: str) -> str:
    return f"expected a file, got the link {name}; copy the file that it leads to"
