"""Members of downloaded archives, found by pattern."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from stages.errors import DataError
from stages.shared.members import MAX_SHOWN, member_names


def matching_members(path: Path, patterns: Sequence[str]) -> list[str]:
    """Return the one member of an archive that matches each pattern. Raises DataError unless there is exactly one for each."""
    names, found = member_names(path), []
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if len(matching) != 1:
            shown = ", ".join((matching or names)[:MAX_SHOWN]) or "an empty archive"
            raise DataError(
                f"{path}: expected one member that matches {pattern}, got {len(matching)} of {len(names)} files: {shown}"
            )
        found += matching
    return found
