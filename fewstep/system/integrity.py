"""Sizes and checksums of files, kept in the description beside them, so that damage is found before anything is parsed.

Each part of a directory is described as `{"bytes": 1234, "crc32": "0a1b2c3d"}`. CRC-32 misses a random alteration once in 4e9 and
takes half of the time of SHA-256, 0.3 s for a gigabyte; the sha256 of an artifact's manifest is the strong check. The description
itself is small: it holds the sha256 of its canonical JSON.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fewstep.system.format import BundleError, check_permission, require_file

CHECKSUM = "crc32"
"""Key of a part's checksum, and the name of the algorithm."""
SEAL = "sha256"
"""Key of a description's own digest, and the name of the algorithm."""
BLOCK = 1 << 20
"""Bytes read at a time."""
REMEDY = "the file is damaged: copy the directory again, or make it again"


def measure(path: Path) -> dict[str, Any]:
    """Return the size and the checksum of a file. Raises OSError."""
    value = size = 0
    block = memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            value = zlib.crc32(block[:count], value)
            size += count
    return {"bytes": size, CHECKSUM: f"{value:08x}"}


def seal(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description with its own digest."""
    return {**description, SEAL: _digest(description)}


def check_description(path: Path, description: Mapping[str, Any]) -> None:
    """Compare the description that was read from `path` with its own digest. Raises BundleError when they differ."""
    expected = description.get(SEAL)
    got = _digest(description)
    if expected != got:
        raise BundleError(f"{path}: expected content of {SEAL} {expected}, got {got}; {REMEDY}")


def check_parts(directory: Path, description: Mapping[str, Any], names: Iterable[str] | None = None) -> None:
    """Compare parts of a directory (default: all) with the description: first all sizes, then all checksums.

    Raises BundleError that names the first part that is missing, differs or is not described.
    """
    parts: Mapping[str, Mapping[str, Any]] = description["parts"]
    checked = list(parts if names is None else names)
    for name in checked:
        require_file(directory / name)
        if name not in parts:
            raise BundleError(f"{directory / name}: expected one of the described files ({', '.join(parts)}), got another")
        _compare(directory / name, f"{parts[name]['bytes']} bytes", f"{(directory / name).stat().st_size} bytes")
    for name in checked:
        _compare(directory / name, *(f"{CHECKSUM} {part[CHECKSUM]}" for part in (parts[name], _measured(directory / name))))


def _compare(path: Path, expected: str, got: str) -> None:
    if expected != got:
        raise BundleError(f"{path}: expected {expected}, got {got}; {REMEDY}")


def _measured(path: Path) -> dict[str, Any]:
    check_permission(path)
    try:
        return measure(path)
    except OSError as error:
        raise BundleError(f"{path}: expected a readable file, got: {error.strerror}; {REMEDY}") from error


def _digest(description: Mapping[str, Any]) -> str:
    content = {key: value for key, value in description.items() if key != SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
