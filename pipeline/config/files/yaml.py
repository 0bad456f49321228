"""Read a config as written: YAML with line numbers, the files that it extends, and `--set` overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fewstep.config.problems import KeyPath
from pipeline.config.files.bases import FILE_KEYS, Bases, lay
from pipeline.config.files.limits import MAX_DEPTH, MAX_VALUES, problem_of_text, read_file, usable
from pipeline.config.tree import Node, dotted, shown
from pipeline.errors import ConfigError

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain scalars: `no` is text (a language), `1e-9` a number, a date text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (the name is PyYAML's)
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose one node. Raises yaml.YAMLError below the level `MAX_DEPTH`."""
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, f"more than {MAX_DEPTH} levels of nesting", self.get_mark())
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.inf|\.nan", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), list(_first))


def read_config(path: Path, overrides: Sequence[str]) -> tuple[Node, list[str]]:
    """Return the file at `path` merged over its base, with the overrides on top, and the syntax problems.

    Raises ConfigError when a file cannot be read at all.
    """
    problems: list[str] = []
    root = Bases(lambda file: _read_file(file, problems), problems).merged(path)
    for override in overrides:
        root = _override(root, override, problems)
    for key in FILE_KEYS:
        if key in root.map:
            problems.append(f"{root.map[key].where}: {key}: expected it in the file itself, got it from the command line")
            root = root.without((key,))
    return root, problems


def read_value(text: str, where: str, problems: list[str], path: KeyPath = ()) -> Node:
    """Read one value from the command line. Raises ConfigError for invalid YAML."""
    return _Reader(where, problems, fixed=True).read(text, path)


def _read_file(path: Path, problems: list[str]) -> Node:
    return _as_map(_Reader(str(path), problems).read(read_file(path)), problems)


def _as_map(node: Node, problems: list[str]) -> Node:
    if node.value is None:
        return node.with_value({})
    if not isinstance(node.value, dict):
        problems.append(f"{node.where}: expected a map of keys, got {shown(node.value)}")
        return node.with_value({})
    return node


def _override(root: Node, override: str, problems: list[str]) -> Node:
    key, separator, text = override.partition("=")
    where = f"--set {key}"  # the value may be a password
    keys = key.split(".")
    if not separator or not all(keys):
        problems.append(f"{where}: expected KEY=VALUE with a dotted key, such as training.updates=100")
        return root
    if len(keys) > MAX_DEPTH:
        problems.append(f"--set: expected a key of at most {MAX_DEPTH} parts, got {len(keys)}")
        return root
    try:
        node = read_value(text, where, problems, tuple(keys))
    except ConfigError as error:
        problems.extend(error.problems)
        return root
    for depth in range(len(keys) - 1, -1, -1):
        node = Node({keys[depth]: node}, where, tuple(keys[:depth]))
    return lay(root, node)


class _Reader:
    """A converter from YAML's nodes to the nodes of this package."""

    def __init__(self, file: str, problems: list[str], fixed: bool = False) -> None:
        self.file = file
        self.problems = problems
        self.fixed = fixed
        """Return whether `file` is an override, which has no lines."""
        self.open: list[int] = []
        self.values = 0

    def read(self, text: str, path: KeyPath = ()) -> Node:
        try:
            node = yaml.compose(text, Loader=_Loader)
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML passes on the errors of escapes
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
            if re.search("[\ud800-\udfff]", text):
                what = f"{text[:100]!a}, whose bytes are not UTF-8; rename the file or folder if it is one"
            raise ConfigError([f"{self.where(mark)}: expected YAML, got: {what}"]) from error
        if node is None:
            return Node(None, self.where(None), path)
        return self.convert(node, self.where(node.start_mark), path)

    def where(self, mark: Any) -> str:
        line = mark.line + 1 if mark else 1
        return self.file if self.fixed else f"{self.file}:{line}"

    def convert(self, node: yaml.Node, where: str, path: KeyPath) -> Node:
        if id(node) in self.open:
            raise ConfigError([f"{where}: {dotted(path)}: expected an alias of something else, got one that holds itself"])
        self.check_limits(where, path)
        self.open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return Node(self.entries(node, path), where, path)
            if isinstance(node, yaml.SequenceNode):
                items = [self.convert(item, self.where(item.start_mark), (*path, i)) for i, item in enumerate(node.value)]
                return Node(items, where, path)
            return Node(self.scalar(node, where, path), where, path)
        finally:
            self.open.pop()

    def check_limits(self, where: str, path: KeyPath) -> None:
        self.values += 1
        place = f"{where}: {dotted(path[:4])}"
        if self.values > MAX_VALUES:
            raise ConfigError([f"{place}: expected at most {MAX_VALUES:,} values, aliases written out; use fewer aliases"])
        if len(self.open) > MAX_DEPTH:
            raise ConfigError([f"{place}: expected at most {MAX_DEPTH} levels of nesting, aliases written out, got more"])

    def entries(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key, value in node.value:
            where = self.where(key.start_mark)
            place = (*path, usable(str(key.value))[:80])
            if problem := _problem_of(key, entries):
                self.problems.append(f"{where}: {dotted(place)}: {problem}")
            else:
                entries[key.value] = self.convert(value, where, place)
        return entries

    def scalar(self, node: yaml.Node, where: str, path: KeyPath) -> Any:
        kind = node.tag.removeprefix(_TAG)
        text = str(node.value)
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text.replace("_", ""))
                case "float":
                    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
                case "str":
                    return self.text(text, where, path)
        except (ValueError, KeyError):
            pass
        self.problems.append(f"{where}: {dotted(path)}: expected a plain YAML value, got {text[:80]!r} tagged {node.tag[:80]}")
        return usable(text)

    def text(self, text: str, where: str, path: KeyPath) -> str:
        problem = problem_of_text(text)
        if problem is None:
            return text
        self.problems.append(f"{where}: {dotted(path)}: {problem}")
        return usable(text)


def _problem_of(key: yaml.Node, others: Mapping[str, Node]) -> str | None:
    """Return the problem of a key, by itself or with an earlier one."""
    if key.tag != _TAG + "str":
        return f"expected text as a key, got {shown(key.value)}; put it in quotes"
    if problem := problem_of_text(key.value):
        return problem
    if key.value == "<<":
        return "expected a key, got YAML's merge key, which is not supported; use base: or defaults: for what is shared"
    if key.value in others:
        return f"expected each key once, got it again (first on line {others[key.value].where.rpartition(':')[2]})"
    return None
