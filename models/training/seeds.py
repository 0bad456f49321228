"""Seeds as pure functions of their purpose, so that no generator state needs to be saved."""

from __future__ import annotations

import hashlib


def seed_of(*parts: int | str) -> int:
    """Return a seed of 63 bits for, say, (seed, update, rank, purpose); distinct parts give unrelated seeds."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
