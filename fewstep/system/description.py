"""Descriptions of trainings and systems: their versions, their keys and their digests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fewstep.system.format import SOURCE_PIECES, TARGET_PIECES, WEIGHTS, BundleError, read_json, require_file
from fewstep.system.integrity import check_described, check_description

TRAINING_FORMAT = 3
"""Version of the descriptions of trainings, incremented when older programs can no longer read them. Format 2 added sizes and
checksums."""
SYSTEM_FORMAT = 4
"""Version of system directories. Format 2 added sizes and checksums, format 3 labelled searches, format 4 `codes.safetensors` and
a folder for each member of an ensemble."""


def read_description(directory: Path, verify: bool = True) -> dict[str, Any]:
    """Return `system.json` of a complete system, compared with its own digest unless `verify` is False; parts are not read.

    Raises BundleError for another directory, another format version, a damaged description or a missing part.
    """
    keys = ("family", "network", "sizes", "name", "task", "languages", "search", "searches", "parts")
    path = directory / "system.json"
    description = read_versioned(path, "a system", SYSTEM_FORMAT, keys, verify)
    check_described(path, description["parts"])
    for part in (WEIGHTS, SOURCE_PIECES, TARGET_PIECES):
        if part not in description["parts"]:
            raise BundleError(f"{path}: parts: expected {part} among them, got {', '.join(description['parts']) or 'none'}")
    for part in description["parts"]:
        require_file(directory / part)
    return description


def read_versioned(path: Path, content: str, expected: int, keys: Sequence[str], verify: bool) -> dict[str, Any]:
    """Return the description in the file `path` of a directory that should hold `content` of format `expected`, with these keys.

    Raises BundleError.
    """
    description = read_json(path, content)
    version = description.get("format")
    if version != expected:
        older = version is None or (isinstance(version, int) and version < expected)
        remedy = "create it again" if older else "use the version of this program that wrote it, or a later one"
        raise BundleError(f"{path.parent}: expected {content} of format {expected}, got {version!r}; {remedy}")
    if verify:
        check_description(path, description)
    if missing := [key for key in keys if key not in description]:
        raise BundleError(f"{path}: {', '.join(missing)} missing; the file is damaged")
    return description
