"""The forms of `search:` in a config, all expanded to a map from labels to searches.

One search is written as `greedy`, `{beam: {beam_size: 4}}`, or in its long form with `strategy`. Several searches are a list,
with labels that are derived from the options (`fewstep.config.labels`), or a map from labels of the user to searches.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from fewstep.config.search import SearchConfig
from pipeline.config.tree import Node, tree

KEY = "strategy"
UNLABELLED = "#"
"""The first character of the key of a search whose label cannot be derived or is taken; labels do not contain it."""


def labelled_searches(kind: type[SearchConfig], node: Node) -> Node:
    """Return the searches of a system, of type `kind`, by label."""
    if isinstance(node.value, list):
        return _derived(kind, node, [long_form(kind, item) for item in node.value])
    if _is_by_label(kind, node):
        return node.with_value({label: _labelled(kind, search) for label, search in node.map.items()})
    return _derived(kind, node, [long_form(kind, node)])


def long_form(kind: type[SearchConfig], node: Node) -> Node:
    """Return a search as a map with `strategy`, from any form."""
    if isinstance(node.value, str):
        search = kind.parse(node.value)
        return node.with_value({KEY: node}) if search is None else _written_out(node, search)
    if _is_short(kind, node):
        ((name, options),) = node.map.items()
        return node.with_value({KEY: Node(name, options.where, options.path), **options.map})
    return node


def _written_out(node: Node, search: SearchConfig) -> Node:
    """Return the options that a derived label stands for."""
    default = type(search)(strategy=search.strategy)
    stated = {key: value for key, value in asdict(search).items() if value != asdict(default)[key]}
    return tree({KEY: search.strategy, **stated}, node.where, node.path)


def _is_short(kind: type[SearchConfig], node: Node) -> bool:
    """Return whether a map is `{strategy: options}`."""
    if len(node.map) != 1:
        return False
    ((name, options),) = node.map.items()
    return name not in {f.name for f in fields(kind)} and (options.value is None or isinstance(options.value, dict))


def _is_by_label(kind: type[SearchConfig], node: Node) -> bool:
    """Return whether a map is from labels to searches: no key is an option, and some value states a strategy."""
    if node.map.keys() & {f.name for f in fields(kind)}:
        return False
    return any(_states_strategy(kind, search) for search in node.map.values())


def _states_strategy(kind: type[SearchConfig], node: Node) -> bool:
    strategies = kind.strategies()
    short = len(node.map) == 1 and next(iter(node.map)) in strategies
    return isinstance(node.value, str) or KEY in node.map or short


def _labelled(kind: type[SearchConfig], node: Node) -> Node:
    """Return a search of a map by labels, which has to state its strategy."""
    search = long_form(kind, node)
    return search if KEY in search.map or not search.map else search.with_value({KEY: node.child(KEY, None), **search.map})


def _derived(kind: type[SearchConfig], node: Node, items: list[Node]) -> Node:
    entries: dict[str, Node] = {}
    for number, item in enumerate(items):
        label = _label(kind, item.plain())
        entries[label if label and label not in entries else f"{UNLABELLED}{number}"] = item
    return node.with_value(entries)


def _label(kind: type[SearchConfig], values: Any) -> str:
    """Return the derived label of a search that is not validated yet; empty if the search is not valid."""
    try:
        return kind.from_values(values).label
    except (TypeError, ValueError, AttributeError, KeyError):
        return ""
