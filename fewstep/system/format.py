"""Names of the parts of a system directory, and its JSON files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fewstep.access import permission_problem
from fewstep.bounded_files import json_value

WEIGHTS, CODES = "model.safetensors", "codes.safetensors"
SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"
MERGES = "merges.txt"
NGRAM = "ngram/model.ngram"
TABLES = "tables/tables.bin"
"""Parts of a system."""
VERIFIER, DRAFTER, RESCORER = "verifier", "drafter", "rescorer"
"""Folders of other systems that a system works with: the one that verifies its drafts, one that drafts, and one that chooses among
its outputs."""
MEMBERS = "members"
"""Folder with a folder for each further network of an ensemble: `2`, `3`, ..."""

MAX_JSON_BYTES = 1 << 24


class BundleError(ValueError):
    """A directory is not a valid system: a file is missing or damaged, has another format version, or weights do not fit."""


def network_folders(description: Mapping[str, Any]) -> list[str]:
    """Return the folders with a network of a system, relative to it; several for an ensemble."""
    members = {str(Path(part).parent) for part in description["parts"] if part.startswith(f"{MEMBERS}/")}
    return [".", *sorted(members, key=lambda folder: int(Path(folder).name))]


def check_permission(path: Path) -> None:
    """Raise BundleError if this user may not read a file or enter a directory above it."""
    if problem := permission_problem(path):
        raise BundleError(f"{path}: {problem}")


def require_file(path: Path) -> None:
    """Raise BundleError if there is no such file."""
    if not os.path.isfile(path):  # unlike the method of paths, it answers for names that no file can have
        check_permission(path)
        raise BundleError(f"{path}: the file is missing; the directory is incomplete, create it again")


def write_json(path: Path, value: object) -> None:
    """Write JSON with sorted keys and one final newline."""
    path.write_text(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, content: str) -> dict[str, Any]:
    """Return the JSON object in a file of a directory that should hold `content`. Raises BundleError for any other file."""
    check_permission(path)
    if not os.path.isfile(path):  # unlike the method of paths, it answers for names that no file can have
        raise BundleError(f"{path.parent}: expected a directory with {content} (it has {path.name}), but there is no such file")
    try:
        with path.open("rb") as file:
            text = file.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            raise BundleError(f"{path}: expected JSON of at most {MAX_JSON_BYTES} bytes, got more; the file is damaged")
        return json_object(text)
    except (OSError, RecursionError, ValueError) as error:
        raise BundleError(f"{path}: expected JSON, but: {error}; the file is damaged") from error


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object that a file contains as text.

    Raises ValueError for anything else, a surrogate that is not half of a pair included, and RecursionError for deep nesting.
    """
    value = json_value(text.encode() if isinstance(text, str) else text)
    if not isinstance(value, dict):
        raise ValueError(f"an object is expected, got {type(value).__name__}")
    json.dumps(value, ensure_ascii=False).encode()
    return value
