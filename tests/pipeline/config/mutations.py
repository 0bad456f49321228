"""Random changes of configs: of their text, of their values, and by overrides."""

from __future__ import annotations

import copy
import random
from typing import Any

import yaml

HOSTILE: tuple[Any, ...] = (
    None, True, "", 0, -1, 1, 2**31, 2**63, 10**30, 10**400, -(10**20), 1e300, -1e300, 1e-300, float("nan"), float("inf"),
    [], {}, [[]], [None], {"": {}}, {"a": {"b": {}}}, "x" * 300, "x" * 5000, "\0", "\ud800", "\u202e", "a/b", "../..", "/dev/zero",
    "/dev/null", "/proc/self/mem", "none", "teacher", "{}", "*a", "<<", "base", "yes", "1e9", "0x10", "ß" * 200, "\n", "-", "~",
)  # fmt: skip
"""Values that take the place of others."""
TOKENS = (
    "\t",
    ":",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "!!python/none ",
    "!!int ",
    "|",
    ">",
    "#",
    "'",
    '"',
    "\\",
    "?",
    "%",
    "\x00",
    "é",
    "\x85",
)
"""Pieces that are put into a text."""


def mutated(text: str, others: list[str], chance: random.Random) -> tuple[bytes, list[str]]:
    """Return a config that differs from `text` in one to three places, and overrides."""
    data, overrides = text.encode(), []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        kind = chance.random()
        if kind < 0.65:
            data = _with_changed_value(data, others, chance)
        elif kind < 0.85:
            data = _with_changed_text(data, chance)
        elif kind < 0.92:
            data = data[: chance.randrange(len(data) + 1)] + chance.choice(others).encode()[chance.randrange(200) :]
        else:
            overrides.append(
                f"{chance.choice(KEYS)}={yaml.safe_dump(_hostile(chance), default_flow_style=True, width=10**6).strip()}"
            )
    return data, [override for override in overrides if "\0" not in override and override.isprintable()]


KEYS = (
    "systems",
    "systems.autoregressive",
    "defaults.training.updates",
    "corpus.train",
    "name",
    "benchmark",
    "defaults.search",
    "a.b.c",
)


def _hostile(chance: random.Random) -> Any:
    return copy.deepcopy(chance.choice(HOSTILE))


def _changed(value: Any, chance: random.Random) -> Any:
    """Return a value that differs: for a number often one that may be valid, else any."""
    if isinstance(value, int | float) and chance.random() < 0.7:
        return chance.choice(
            (not value, value + 1, value - 1, value * 10, value * 1000, value / 3, -value, float(value), str(value))
        )
    return _hostile(chance)


def _with_changed_value(data: bytes, others: list[str], chance: random.Random) -> bytes:
    """Replace, remove, add or copy a value of the parsed config; the data itself where it does not parse."""
    try:
        root, other = yaml.safe_load(data), yaml.safe_load(chance.choice(others))
    except (yaml.YAMLError, ValueError, OverflowError, UnicodeDecodeError, RecursionError):
        return data
    places = list(_places(root))
    if not places:
        return data
    holder, key = chance.choice(places)
    action = chance.random()
    if action < 0.5:
        holder[key] = _changed(holder[key], chance)
    elif action < 0.65:
        del holder[key]
    elif action < 0.85:
        source, name = chance.choice(list(_places(other)))
        holder[key] = copy.deepcopy(source[name])
    elif isinstance(holder, dict):
        holder[str(_hostile(chance))] = holder[key]
    return yaml.safe_dump(root, allow_unicode=False, sort_keys=False).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Any:
    """Yield each map or list below `value` with each of its keys."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from _places(inner)


def _with_changed_text(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + chance.choice((0, 1, 1, 4, 40)))
    action = chance.random()
    if action < 0.3:
        return data[:start] + bytes([chance.randrange(256)]) + data[end:]
    if action < 0.6:
        return data[:start] + chance.choice(TOKENS).encode() + data[end:]
    if action < 0.8:
        return data[:start] + data[start:end] * 2 + data[end:]
    return data[:start] + data[end:]
