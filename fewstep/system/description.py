"""Descriptions of trainings and systems: their versions, their keys and their digests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fewstep.relative_names import names_problem
from fewstep.system.format import MEMBERS, SOURCE_PIECES, TARGET_PIECES, WEIGHTS, BundleError, read_json, require_file
from fewstep.system.integrity import CHECKSUM, REMEDY, check_description

TRAINING_FORMAT = 3
"""Version of the descriptions of trainings, incremented when older programs can no longer read them. Format 2 added sizes and
checksums."""
SYSTEM_FORMAT = 5
"""Version of system directories. Format 2 added sizes and checksums, format 3 labelled searches, format 4 `codes.safetensors` and
a folder for each member of an ensemble, format 5 the keys of imported networks and all options of the network."""

TRAINING_KEYS: dict[str, type] = {"family": str, "network": dict, "sizes": dict, "parts": dict}
SYSTEM_KEYS: dict[str, type] = {
    **TRAINING_KEYS,
    "name": str,
    "task": str,
    "languages": dict,
    "search": str,
    "searches": dict,
}
"""Keys of the descriptions, and the types of their values."""

OPTIONAL_KEYS: dict[str, type] = {
    "max_source_tokens": int,
    "links": str,
    "source_prefix": list,
    "unmapped_pieces": dict,
    "origin": dict,
}
MEMBER = re.compile(rf"{MEMBERS}/[1-9][0-9]{{0,5}}/[^/]+")
KINDS = {str: "text", dict: "an object", int: "an integer", list: "a list"}


def read_description(directory: Path, verify: bool = True) -> dict[str, Any]:
    """Return `system.json` of a complete system, compared with its own digest unless `verify` is False; parts are not read.

    Raises BundleError for another directory, another format version, a damaged description, a missing part, and a part that is a
    link or lies elsewhere.
    """
    path = directory / "system.json"
    description = read_versioned(path, "a system", SYSTEM_FORMAT, SYSTEM_KEYS, verify)
    parts = description["parts"]
    for part in (WEIGHTS, SOURCE_PIECES, TARGET_PIECES):
        if part not in parts:
            raise BundleError(f"{path}: parts: expected {part} among them, got {', '.join(parts) or 'none'}")
    for part in parts:
        require_file(directory / part)
    return description


def read_versioned(path: Path, content: str, expected: int, keys: Mapping[str, type], verify: bool) -> dict[str, Any]:
    """Return the description in the file `path` of a directory that should hold `content`, with these keys, of format `expected`.

    Raises BundleError.
    """
    description = read_json(path, content)
    version = description.get("format")
    if type(version) is not int or version != expected:
        older = version is None or (isinstance(version, int) and version < expected)
        remedy = "create it again" if older else "use the version of fewstep that wrote it, or a later one"
        raise BundleError(f"{path.parent}: expected {content} of format {expected}, got {version!r:.80}; {remedy}")
    if verify:
        check_description(path, description)
    if missing := [key for key in keys if key not in description]:
        raise BundleError(f"{path}: expected the keys {', '.join(missing)}, got none of them; {REMEDY}")
    if problems := [*_type_problems(description, keys), *_part_problems(path.parent, description["parts"])]:
        raise BundleError(f"{path}: {'; '.join(problems[:MAX_PROBLEMS])}; {REMEDY}")
    return description


MAX_PROBLEMS = 5
"""Number of problems in a message."""
MAX_ENTRIES = {"parts": 10_000, "searches": 1000, "source_prefix": 64}
"""Largest numbers of entries: each takes time while the system is loaded, and a prefix is in front of each source."""


def _type_problems(description: Mapping[str, Any], keys: Mapping[str, type]) -> Iterator[str]:
    """Yield the values of another type."""
    given = {key: kind for key, kind in OPTIONAL_KEYS.items() if key in description}
    for key, kind in {**keys, **given}.items():
        if type(description[key]) is not kind:
            yield f"{key}: expected {KINDS[kind]}, got {description[key]!r:.80}"
    for key, most in MAX_ENTRIES.items():
        if isinstance(values := description.get(key), dict | list) and len(values) > most:
            yield f"{key}: expected at most {most} entries, got {len(values)}"
    if "max_source_tokens" in given and type(description["max_source_tokens"]) is int and description["max_source_tokens"] < 1:
        yield f"max_source_tokens: expected at least 1, got {description['max_source_tokens']}"
    for key, values in (
        ("source_prefix", description.get("source_prefix")),
        ("unmapped_pieces", description.get("unmapped_pieces")),
    ):
        numbers = [*values.values()] if isinstance(values, dict) else values
        if isinstance(numbers, list) and any(type(number) is not int or number < 0 for number in numbers):
            yield f"{key}: expected numbers of at least 0, got {values!r:.80}"


def _part_problems(directory: Path, parts: object) -> Iterator[str]:
    """Yield the first part with an unacceptable name, and those without a size and a checksum."""
    if problem := names_problem(directory, parts if isinstance(parts, dict) else ()):
        yield f"parts: {problem}"
    for name, entry in parts.items() if isinstance(parts, dict) else ():
        if name.startswith(f"{MEMBERS}/") and not MEMBER.fullmatch(name):
            yield f"parts: expected {MEMBERS}/NUMBER/FILE, got {name!r:.80}"
        if not isinstance(entry, dict) or type(entry.get("bytes")) is not int or not isinstance(entry.get(CHECKSUM), str):
            yield f"parts: {name!r:.80}: expected bytes and {CHECKSUM}, got {entry!r:.80}"
