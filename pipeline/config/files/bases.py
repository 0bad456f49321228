"""The files that a config extends by `base`, and the parts of them that it replaces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fewstep.config.problems import KeyPath
from pipeline.config.files.limits import MAX_BASES
from pipeline.config.tree import Node, dotted, merge, shown

NAMED: tuple[KeyPath, ...] = (("systems",), ("corpus", "test"))
"""Maps whose keys the user names; a file may remove entries of its base from them."""
FILE_KEYS = ("base", "replace")
"""Keys that are only read here."""


@dataclass
class Bases:
    """A reader of a file with all files that it extends."""

    read: Callable[[Path], Node]
    """Return the map in a file. Raises ConfigError if the file cannot be read."""
    problems: list[str]
    """Problems are added here."""
    extended: int = field(default=0, init=False)
    """Number of files that were read for `base`."""

    def merged(self, path: Path, above: tuple[Path, ...] = ()) -> Node:
        """Return the file at `path`, which those `above` extend, merged over its own bases, of which later ones win."""
        root = self.read(path)
        under: Node | None = None
        for base in self._listed(root):
            if file := self._file(path, base, above):
                found = self.merged(file, (*above, path))
                under = found if under is None else lay(under, found)
        # Read before the keys of this file alone, of which `replace` is one, are taken out.
        replaced = list(self._replaced(root, under))
        for key in FILE_KEYS:
            root = root.without((key,))
        if under is None:
            return root
        for keys in replaced:
            under = under.without(keys)
        return lay(under, root)

    def _listed(self, root: Node) -> list[Node]:
        base = root.map.get("base")
        if base is None:
            return []
        return base.value if isinstance(base.value, list) else [base]

    def _file(self, path: Path, base: Node, above: tuple[Path, ...]) -> Path | None:
        if not isinstance(base.value, str):
            expected = "the path of one file, or a list of paths"
            self.problems.append(f"{base.where}: base: expected {expected}, got {shown(base.value)}")
            return None
        file = path.parent / base.value
        self.extended += 1
        if self.extended >= MAX_BASES:
            self.problems.append(
                f"{base.where}: base: expected at most {MAX_BASES} files that extend each other; merge some of them"
            )
        elif not os.path.isfile(file):  # unlike the method of paths, it answers for names that no file can have
            found = "is no regular file" if os.path.exists(file) else "does not exist"
            self.problems.append(f"{base.where}: base: expected a file, got {str(file)!r}, which {found}")
        elif any(file.samefile(other) for other in (*above, path)):
            self.problems.append(f"{base.where}: base: expected a file that is not itself laid over this one, got {str(file)!r}")
        else:
            return file
        return None

    def _replaced(self, root: Node, under: Node | None) -> Iterator[KeyPath]:
        """Yield the keys in `replace`, each of which both the file and one of its bases state."""
        listed = root.map.get("replace")
        if listed is None:
            return
        for node in listed.value if isinstance(listed.value, list) else [listed]:
            keys = tuple(node.value.split(".")) if isinstance(node.value, str) else ()
            if not keys:
                problem = f"expected a list of keys, such as systems or corpus.test, got {shown(node.value)}"
            elif not _states(root, keys):
                problem = f"expected a key that this file states, got {dotted(keys)}"
            elif under is None or not _states(under, keys):
                problem = f"expected a key of its base, got {dotted(keys)}"
            else:
                yield keys
                continue
            self.problems.append(f"{node.where}: replace: {problem}")


def lay(under: Node, over: Node) -> Node:
    """Merge `over` over `under`, without the systems and test sets of `under` that `over` sets to null."""
    merged = merge(under, over)
    for path in NAMED:
        for name, entry in _entries(over, path).items():
            if entry.value is None and name in _entries(under, path):
                merged = merged.without((*path, name))
    return merged


def _entries(root: Node, path: KeyPath) -> dict[str, Node]:
    """Return the map at `path`; empty if there is no map."""
    for key in path:
        root = root.map.get(str(key), Node({}, root.where, ()))
    return root.map


def _states(root: Node, path: KeyPath) -> bool:
    return str(path[-1]) in _entries(root, path[:-1])
