"""Small files of a store: JSON, digests, atomic writes and removals."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import durable
from fewstep.bounded_files import MAX_RECORD_BYTES, json_value, read_bounded
from pipeline.store.host import HOST, Host
from stages.errors import FULL, unwritable

REMOVED = ".removed"
"""Suffix of a directory that is being removed."""


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if the file is missing or holds anything else."""
    try:
        value = json_value(read_bounded(path, MAX_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_atomically(path: Path, text: str, host: Host = HOST) -> None:
    """Write a small file as a whole or not at all. It survives a power cut. Raises StageError if the disk is full."""
    temporary = path.with_name(f"{path.name}.{host.token()}.tmp")
    try:
        durable.make_directory(path.parent, host.disk)
        durable.write_whole(path, lambda unnamed: unnamed.write_text(text, encoding="utf-8"), temporary, host.disk)
    except OSError as error:
        if error.errno in FULL:
            raise unwritable(path, error) from error
        raise


def discard(path: Path, host: Host = HOST) -> None:
    """Remove a directory. It is renamed first, so that an interrupted removal leaves nothing that looks whole. Raises OSError."""
    doomed = path
    if path.suffix != REMOVED:
        doomed = path.with_name(f"{path.name}.{host.token()}{REMOVED}")
        path.rename(doomed)
    host.disk.remove_tree(doomed)


def text_digest(text: str) -> str:
    """Return the sha256 of a text as 64 hex digits. Paths and JSON may hold surrogates, which UTF-8 lacks."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def file_digest(path: Path) -> str:
    """Return the sha256 of a file's content as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
