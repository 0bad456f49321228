"""Names of files in a directory that came from elsewhere: none of them may lead out of it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

__all__ = ["name_problem"]

MAX_COMPONENT, MAX_NAME = 255, 4095
"""Bytes of a file name and of a path (`NAME_MAX` and `PATH_MAX` of Linux)."""


def name_problem(directory: Path, name: object) -> str | None:
    """Return why `name` is not an acceptable name of a file below `directory`, or None.

    A name is relative, in its shortest form, without `..`, and neither it nor a folder on the way is a link.
    """
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= MAX_NAME:
        return f"expected the name of a file, got {name!r:.80}"
    parts = PurePosixPath(name).parts
    longest = max(len(part.encode()) for part in parts) if parts else 0
    if name.startswith("/") or ".." in parts or "/".join(parts) != name or not 0 < longest <= MAX_COMPONENT:
        return f"expected the relative name of a file below the directory, got {name!r:.80}"
    path = directory
    for part in parts:
        path = path / part
        if path.is_symlink():
            return f"expected a file, got the link {path.relative_to(directory)}; copy the file that it leads to"
    return None
