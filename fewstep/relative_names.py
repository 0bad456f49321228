"""Names of files in a directory that came from elsewhere: none of them may lead out of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["name_problem", "names_problem"]

MAX_COMPONENT, MAX_NAME = 255, 4095
"""Bytes of a file name and of a path (`NAME_MAX` and `PATH_MAX` of Linux)."""


def name_problem(directory: Path, name: object) -> str | None:
    """Return why `name` is not an acceptable name of a file below `directory`, or None.

    A name is relative, in its shortest form, without `..`, and neither it nor a folder on the way is a link.
    """
    return names_problem(directory, [name])


def names_problem(directory: Path, names: Iterable[object]) -> str | None:
    """Return the first `name_problem` of several names, or None. A folder that they share is looked at once."""
    folders: set[str] = set()
    found = (_form_problem(name) or _link_problem(directory, str(name), folders) for name in names)
    return next((problem for problem in found if problem), None)


def _form_problem(name: object) -> str | None:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= MAX_NAME:
        return f"expected the name of a file, got {name!r:.80}"
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or max(len(part.encode()) for part in parts) > MAX_COMPONENT:
        return f"expected the relative name of a file below the directory, got {name!r:.80}"
    return None


def _link_problem(directory: Path, name: str, folders: set[str]) -> str | None:
    """Return a problem if a name, or a folder on the way that is not among `folders`, is a link. Add its folders to them."""
    end = name.find("/")
    while end >= 0:
        if (folder := name[:end]) not in folders:
            if (directory / folder).is_symlink():
                return _link(folder)
            folders.add(folder)
        end = name.find("/", end + 1)
    return _link(name) if (directory / name).is_symlink() else None


def _link(name: str) -> str:
    return f"expected a file, got the link {name}; copy the file that it leads to"
