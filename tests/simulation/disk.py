"""The simulated file system: what processes see, and what survives a power cut."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field


@dataclass(eq=False)
class File:
    """A file: its bytes, and those that were synced."""

    data: bytes = b""
    synced: bytes = b""
    changed: float = 0.0
    creator: str = ""
    """The process that created it."""


@dataclass(eq=False)
class Folder:
    """A directory: its entries, and those that were synced."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    changed: float = 0.0


Node = File | Folder
Change = list[tuple[Folder, str, Node | None]]
"""A change of names that is durable as a whole or not at all: the new entry of each name, or None."""


def error(number: int, path: object) -> OSError:
    return OSError(number, os.strerror(number), str(path))


class Disk:
    """A tree of files."""

    def __init__(self) -> None:
        self.root = Folder()
        self._pending: list[Change] = []
        """Changes of names that are not synced, in their order."""

    def find(self, parts: tuple[str, ...]) -> Node | None:
        """Return what has this path."""
        node: Node | None = self.root
        for part in parts:
            if not isinstance(node, Folder):
                return None
            node = node.entries.get(part)
        return node

    def folder(self, parts: tuple[str, ...]) -> Folder:
        """Return a directory. Raises FileNotFoundError or NotADirectoryError."""
        node = self.find(parts)
        if isinstance(node, Folder):
            return node
        raise error(errno.ENOENT if node is None else errno.ENOTDIR, "/" + "/".join(parts))

    def change(self, change: Change, now: float) -> None:
        """Change names, atomically."""
        for folder, name, node in change:
            folder.changed = now
            if node is None:
                folder.entries.pop(name, None)
            else:
                folder.entries[name] = node
        self._pending.append(change)

    def sync(self, node: Node) -> None:
        """Make the bytes of a file or the names in a directory durable, and the earlier changes that these depend on."""
        if isinstance(node, File):
            node.synced = node.data
            return
        needed: set[tuple[int, str]] = set()
        kept: list[Change] = []
        durable: list[Change] = []
        for change in reversed(self._pending):
            keys = {(id(folder), name) for folder, name, _ in change}
            if keys & needed or any(folder is node for folder, _, _ in change):
                needed |= keys
                durable.append(change)
            else:
                kept.append(change)
        for change in reversed(durable):
            _apply(change)
        self._pending = kept[::-1]

    def lose_power(self, rng: random.Random, *, reordered: bool) -> None:
        """Keep synced bytes and names. Of the others keep some: the earliest changes of names, or any of them if `reordered`."""
        survivors = rng.randrange(len(self._pending) + 1)
        for number, change in enumerate(self._pending):
            if rng.random() < 0.5 if reordered else number < survivors:
                _apply(change)
        self._pending = []
        _restart(self.root, rng)


def _apply(change: Change) -> None:
    for folder, name, node in change:
        if node is None:
            folder.durable.pop(name, None)
        else:
            folder.durable[name] = node


def _restart(folder: Folder, rng: random.Random) -> None:
    folder.entries = dict(folder.durable)
    for node in folder.entries.values():
        if isinstance(node, Folder):
            _restart(node, rng)
        elif node.data != node.synced:
            node.data = node.synced = rng.choice((node.synced, node.data, node.data[: rng.randrange(len(node.data) + 1)]))
