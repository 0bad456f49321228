"""Files of other programs, and the error of those that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class ForeignModelError(ValueError):
    """Files of another program do not hold a network that can be imported."""


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ForeignModelError for any other file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise ForeignModelError(f"{path.name}: expected JSON, got: {error}; copy the file again") from error
    if not isinstance(value, dict):
        raise ForeignModelError(f"{path.name}: expected a JSON object, got {type(value).__name__}")
    return value


def required(files: Mapping[str, Path], *names: str) -> Path:
    """Return the first of these files that there is. Raises ForeignModelError if all are missing."""
    for name in names:
        if name in files:
            return files[name]
    raise ForeignModelError(f"expected a file {' or '.join(names)}, got {', '.join(sorted(files)) or 'none'}; download all files")
