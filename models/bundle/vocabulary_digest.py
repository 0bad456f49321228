"""What tells one vocabulary from another."""

from __future__ import annotations

import hashlib
from pathlib import Path

PIECES = ("source.spm", "target.spm")


def vocabulary_digest(directory: Path) -> bytes:
    """32 bytes that name the vocabulary whose `source.spm` and `target.spm` lie in `directory` (of a vocabulary or a system).

    Raises OSError when one of them cannot be read.
    """
    parts = [hashlib.sha256((directory / name).read_bytes()).digest() for name in PIECES]
    return hashlib.sha256(b"".join(parts)).digest()
