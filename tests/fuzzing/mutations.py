"""Mutations of the bytes of a file, each determined by a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

HEAD = 4096
"""Half of the places lie in this number of first bytes, where formats have their headers."""

ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 255, 1 << 16, 1 << 31, 1 << 40, 10**30, 0.5, -1e308, 1e308),
    *(float("nan"), float("inf"), "", "x", "../x", "/etc/passwd", "float16", "\ud800", "\0", "x" * 300, [], {}, [1], {"a": 1}),
]
"""Values that take the place of others in JSON."""


def mutate(content: bytes, other: bytes, seed: int) -> tuple[str, bytes]:
    """Return the name of a mutation and the mutated content; `other` is the content of another file, for splices."""
    draw = random.Random(seed)
    kinds = [flip, flip, numbers, cut, splice, repeat, insert]
    kind: Callable[[random.Random, bytes, bytes], bytes] = draw.choice([edit, edit, *kinds] if content[:1] == b"{" else kinds)
    return kind.__name__, kind(draw, content, other)


def _place(draw: random.Random, content: bytes) -> int:
    return draw.randrange(max(1, min(HEAD, len(content)) if draw.random() < 0.5 else len(content)))


def flip(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Flip one to eight bits."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 8]) if content else 0):
        changed[_place(draw, content)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def numbers(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Overwrite an aligned number of 1, 4 or 8 bytes by one near a limit."""
    size = draw.choice([1, 4, 8])
    value = draw.choice([0, 1, (1 << 8 * size) - 1, 1 << 8 * size - 1, (1 << 8 * size - 1) - 1, draw.getrandbits(8 * size)])
    place = _place(draw, content) // size * size
    return content[:place] + value.to_bytes(size, "little") + content[place + size :]


def cut(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Keep only the beginning, or only the end."""
    place = _place(draw, content)
    return content[:place] if draw.random() < 0.7 else content[place:]


def splice(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Replace a range by one of another file."""
    place, start, size = _place(draw, content), _place(draw, other), draw.choice([1, 8, 64, 4096])
    return content[:place] + other[start : start + size] + content[place + size :]


def repeat(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Write a range of the file over another one."""
    place, start, size = _place(draw, content), _place(draw, content), draw.choice([4, 8, 64, 1024])
    return content[:place] + content[start : start + size] + content[place + size :]


def insert(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Insert random bytes, or remove some."""
    place, size = _place(draw, content), draw.choice([1, 8, 64])
    if draw.random() < 0.5:
        return content[:place] + content[place + size :]
    return content[:place] + draw.randbytes(size) + content[place:]


def edit(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Replace, remove or rename a value of a JSON object at random depth."""
    try:
        value = json.loads(content)
    except ValueError:
        return flip(draw, content, other)
    node = value
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = draw.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and draw.random() < 0.8:
            node = node[key]
            continue
        action = draw.random()
        if action < 0.7:
            node[key] = draw.choice(ODD_VALUES)
        elif action < 0.85 or isinstance(node, list):
            del node[key]
        else:
            node[draw.choice(["unknown", "../x", "a/../../x", str(key) + "x"])] = node.pop(key)
        break
    return json.dumps(value).encode()
