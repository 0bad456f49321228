"""Files of other toolkits, and the error of those that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewstep.bounded_files import json_value, read_bounded


class ForeignModelError(ValueError):
    """Files of another toolkit do not hold a network that can be imported."""


MAX_JSON_BYTES = 1 << 26
"""Largest JSON file, of which vocabularies are the largest."""
MAX_BITS = 256
"""Numbers of more bits are not written out."""


def shown(value: object, length: int = 100) -> str:
    """Return a short text of a value from elsewhere, for errors: a word or a number, or else the type and the number of entries."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in value[:length])
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, bool | int | float):
        return str(value)
    size = f" of {len(value)} entries" if isinstance(value, dict | list | tuple | set) else ""
    return f"{type(value).__name__}{size}"


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ForeignModelError for any other file."""
    try:
        value = json_value(read_bounded(path, MAX_JSON_BYTES))
    except (OSError, RecursionError, ValueError) as error:
        raise ForeignModelError(f"{path.name}: expected JSON, got: {error}; copy the file again") from error
    if not isinstance(value, dict):
        raise ForeignModelError(f"{path.name}: expected a JSON object, got {type(value).__name__}")
    return value


def content_of(path: Path) -> bytes:
    """Return the content of a file of a vocabulary. Raises ForeignModelError for one that cannot be read or is too large."""
    try:
        return read_bounded(path)
    except (OSError, ValueError) as error:
        raise ForeignModelError(f"{path.name}: expected a file of a vocabulary, got: {error}; copy the file again") from error


def required(files: Mapping[str, Path], *names: str) -> Path:
    """Return the first of these files that there is. Raises ForeignModelError if all are missing."""
    for name in names:
        if name in files:
            return files[name]
    raise ForeignModelError(f"expected a file {' or '.join(names)}, got {', '.join(sorted(files)) or 'none'}; download all files")
