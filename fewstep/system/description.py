"""Descriptions of trainings and systems: their version, their keys and their digests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fewstep.system.format import BundleError, read_json, require_file
from fewstep.system.integrity import check_description

FORMAT = 3
"""Version of the descriptions of trainings and systems, incremented when older programs can no longer read them. Format 2 added
sizes and checksums, format 3 labelled searches."""


def read_description(directory: Path, verify: bool = True) -> dict[str, Any]:
    """Return `system.json` of a complete system, compared with its own digest unless `verify` is False; parts are not read.

    Raises BundleError for another directory, another format version, a damaged description or a missing part.
    """
    keys = ("family", "network", "sizes", "name", "languages", "search", "searches", "parts")
    description = read_versioned(directory, "system.json", "a system", keys, verify)
    for part in description["parts"]:
        require_file(directory / part)
    return description


def read_versioned(directory: Path, name: str, content: str, keys: Sequence[str], verify: bool) -> dict[str, Any]:
    """Return the description `name` of a directory that should hold `content`, with these keys. Raises BundleError."""
    description = read_json(directory / name, content)
    version = description.get("format")
    if version != FORMAT:
        older = version is None or (isinstance(version, int) and version < FORMAT)
        remedy = "create it again" if older else "use the version of this program that wrote it, or a later one"
        raise BundleError(f"{directory}: expected {content} of format {FORMAT}, got {version!r}; {remedy}")
    if verify:
        check_description(directory / name, description)
    if missing := [key for key in keys if key not in description]:
        raise BundleError(f"{directory / name}: {', '.join(missing)} missing; the file is damaged")
    return description
