"""A config as written: values with the file, the line and the dotted path that they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fewstep.config.problems import KeyPath


@dataclass(frozen=True)
class Node:
    """One value of a config."""

    value: Any
    """A scalar, a dict from names to nodes, or a list of nodes."""
    where: str
    """`file:line`, or the `--set` that it came from."""
    path: KeyPath
    """Keys that lead to it where it was written."""

    @property
    def map(self) -> dict[str, Node]:
        """The entries of a map; empty for any other value."""
        return self.value if isinstance(self.value, dict) else {}

    def with_value(self, value: Any) -> Node:
        return replace(self, value=value)

    def child(self, key: str, value: Any) -> Node:
        """Return a derived value below this one."""
        return Node(value, self.where, (*self.path, key))

    def plain(self) -> Any:
        """Return the bare JSON-like value."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def locate(self, path: KeyPath) -> tuple[Node, KeyPath]:
        """Return the deepest node along `path`, and the rest of the path from there."""
        if path and isinstance(self.value, dict) and path[0] in self.value:
            return self.map[str(path[0])].locate(path[1:])
        if path and isinstance(self.value, list) and isinstance(path[0], int) and path[0] < len(self.value):
            found: tuple[Node, KeyPath] = self.value[path[0]].locate(path[1:])
            return found
        return self, path

    def without(self, *paths: KeyPath) -> Node:
        """Return this tree without the values at some paths, or without the whole lists that the paths lead into."""
        if not isinstance(self.value, dict):
            return self
        entries = dict(self.map)
        below: dict[str, list[KeyPath]] = {}
        for path in paths:
            below.setdefault(str(path[0]), []).append(path[1:])
        for key, rests in below.items():
            if key in entries and all(rests) and isinstance(entries[key].value, dict):
                entries[key] = entries[key].without(*rests)
            else:
                entries.pop(key, None)
        return self.with_value(entries)


def tree(value: Any, where: str, path: KeyPath = ()) -> Node:
    """Wrap a bare value whose parts all come from one place."""
    if isinstance(value, Mapping):
        return Node({str(k): tree(v, where, (*path, str(k))) for k, v in value.items()}, where, path)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Node([tree(v, where, (*path, i)) for i, v in enumerate(value)], where, path)
    return Node(value, where, path)


def merge(under: Node, over: Node) -> Node:
    """Merge maps key by key; any other value is replaced. Searches are merged only if `under` has all labels of `over`."""
    if not isinstance(under.value, dict) or not isinstance(over.value, dict):
        return over
    if _are_searches(over.path) and not over.value.keys() <= under.value.keys():
        return over
    entries = dict(under.value)
    for key, node in over.value.items():
        entries[key] = merge(entries[key], node) if key in entries else node
    return over.with_value(entries)


def _are_searches(path: KeyPath) -> bool:
    """Return whether a path leads to the searches of a system."""
    return path[-1:] == ("search",) and (path[:-2] == ("systems",) or path == ("defaults", "search"))


def dotted(path: KeyPath) -> str:
    """Return the keys of a path as text, such as `systems.dag.search[1].beam`."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")


def shown(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it."""
    yield node
    value = list(node.value.values()) if isinstance(node.value, dict) else node.value
    for child in value if isinstance(value, list) else ():
        yield from walk(child)
