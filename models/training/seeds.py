"""Seeds as pure functions of what they are for, so that no generator's state is ever saved."""

from __future__ import annotations

import hashlib


def seed_of(*parts: int | str) -> int:
    """A seed of 63 bits for, say, (seed, update, rank, purpose); distinct parts give unrelated seeds."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
