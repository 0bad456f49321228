"""Write out what a config leaves unsaid: short forms, `defaults`, size presets and names that follow from others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from models.common.network import SIZES
from pipeline.config.systems import SEARCHES, SYSTEMS, LatticeSystem, StepwiseSystem
from pipeline.config.tree import Node, merge, tree

_SEARCH_KEYS = {f.name for search in SEARCHES.values() for f in fields(search)}
PRESETS: dict[str, dict[str, Any]] = {
    "summarization": {
        "corpus": {"filters": {"max_length": 10000, "max_ratio": 1.0, "ratio": "target"}},
        "defaults": {"training": {"max_tokens": 1023, "validation_metric": "rougeL"}},
        "evaluation": {"metrics": ["rouge1", "rouge2", "rougeL"]},
    }
}
"""What a task lays under the whole config: defaults that go with it. Its two languages are one, besides."""
FILES = ("source", "target", "tsv", "parquet")


def expand(root: Node) -> Node:
    """The same config in its long form. What has the wrong shape is left for the validation to name."""
    top = _of_task(root.with_value({key: node for key, node in root.map.items() if node.value is not None})).map
    defaults = _each(top["defaults"], search=_searches) if "defaults" in top else root.child("defaults", {})
    if "defaults" in top:
        top["defaults"] = defaults
    if "corpus" in top:
        top["corpus"] = _each(top["corpus"], train=_text, validation=_text, test=_texts)
    if "distillation" in top:
        top["distillation"] = _each(top["distillation"], monolingual=_list)
    if "teacher" in top:
        top["teacher"] = _trained(top["teacher"], defaults, leave=("data", "mixture", "search", "initial_weights"))
    systems = top.get("systems") or root.child("systems", {"autoregressive": _usual(root, "teacher" in top)})
    top["systems"] = _all(systems, lambda node: _system(node, defaults))
    return root.with_value(_follow(root, top))


def _of_task(root: Node) -> Node:
    """The config over what its task presets."""
    task = root.map.get("task")
    if task is None or str(task.value) not in PRESETS:
        return root
    languages = root.map["languages"].map if "languages" in root.map else {}
    stated = [languages[side].value for side in ("source", "target") if side in languages]
    language = next((value for value in stated if isinstance(value, str)), "en")
    preset = {**PRESETS[str(task.value)], "languages": {"source": language, "target": language}}
    return merge(tree(preset, task.where), root)


def _usual(root: Node, teacher: bool) -> Node:
    systems = root.child("systems", {})
    node = systems.child("autoregressive", {})
    return node.with_value({"use": node.child("use", "teacher")} if teacher else {})


def _follow(root: Node, top: dict[str, Node]) -> dict[str, Node]:
    """Fill in the names that follow from others."""
    tests = list(top["corpus"].map["test"].map) if "corpus" in top and "test" in top["corpus"].map else ["test"]
    name = top["name"].value if "name" in top else "run"
    for section, key, value in (
        ("evaluation", "baseline", next(iter(top["systems"].map), "")),
        ("benchmark", "test", next(iter(tests), "")),
        ("tracking", "experiment", name),
    ):
        node = top.get(section) or root.child(section, {})
        if isinstance(node.value, dict) and isinstance(value, str) and not (key in node.map and node.map[key].value):
            node = node.with_value({**node.map, key: node.child(key, value)})
        top[section] = node
    return top


def _system(node: Node, defaults: Node) -> Node:
    node = _each(node, search=_searches, monolingual=_list)
    if "use" in node.map:
        search = {key: value for key, value in defaults.map.items() if key == "search"}
        return merge(defaults.with_value(search), node)
    return _trained(node, defaults)


def _trained(node: Node, defaults: Node, leave: tuple[str, ...] = ()) -> Node:
    """Lay a trained model over the defaults and fill in its sizes. A size that it states itself wins over sizes of the defaults."""
    if not isinstance(node.value, dict) or "from" in node.map:
        return node
    hidden = {*leave, *(SIZES["tiny"] if "size" in node.map else ()), *_foreign(node)}
    merged = merge(defaults.with_value({k: v for k, v in defaults.map.items() if k not in hidden}), node)
    size = merged.map.get("size")
    preset = SIZES.get("tiny" if size is None else str(size.value), {})
    if "family" in node.map and node.map["family"].value == "lattice":
        preset = {**preset, "decoder_layers": 1}
    filled = {key: Node(value, (size or merged).where, (*node.path, key)) for key, value in preset.items()}
    return _unsmoothed(merged.with_value({**filled, **merged.map}))


def _foreign(node: Node) -> set[str]:
    """Keys that `defaults`, which describe a system of the `stepwise` family, may have and a system of another family has not, or
    means something else by."""
    family = node.map.get("family")
    kind = SYSTEMS.get(str(family.value)) if family else StepwiseSystem
    if kind in (None, StepwiseSystem):
        return set()
    theirs = {"search", "decoder_layers"} if kind is LatticeSystem else {"search"}
    return {f.name for f in fields(StepwiseSystem)} - {f.name for f in fields(kind)} | theirs


def _unsmoothed(node: Node) -> Node:
    """What sums over paths is trained without label smoothing, unless it says otherwise."""
    if "family" not in node.map or node.map["family"].value != "dag":
        return node
    training = node.map.get("training") or node.child("training", {})
    if not isinstance(training.value, dict) or "label_smoothing" in training.map:
        return node
    smoothed = training.with_value({**training.map, "label_smoothing": training.child("label_smoothing", 0.0)})
    return node.with_value({**node.map, "training": smoothed})


def _searches(node: Node) -> Node:
    items = node.value if isinstance(node.value, list) else [node]
    return node.with_value([_search(item) for item in items])


def _search(node: Node) -> Node:
    """`greedy`, `{beam: {beam_size: 4}}`, or the long form with `strategy`."""
    if isinstance(node.value, str):
        return node.with_value({"strategy": node})
    if len(node.map) == 1:
        ((name, options),) = node.map.items()
        if name not in _SEARCH_KEYS and (options.value is None or isinstance(options.value, dict)):
            return node.with_value({"strategy": Node(name, options.where, options.path), **options.map})
    return node


def _texts(node: Node) -> Node:
    return _all(node, _text)


def _text(node: Node) -> Node:
    return _each(node, references=lambda n: _all_items(_list(n), _files), **dict.fromkeys(FILES, _files))


def _list(node: Node) -> Node:
    """A single string stands for a list of one."""
    return node.with_value([node]) if isinstance(node.value, str) else node


def _files(node: Node) -> Node:
    single = isinstance(node.value, dict) and "url" in node.value
    return _all_items(node.with_value([node]) if single else _list(node), _file)


def _file(node: Node) -> Node:
    """A URL stands for a map of it."""
    return node.with_value({"url": node}) if isinstance(node.value, str) and "://" in node.value else node


def _all_items(node: Node, change: Callable[[Node], Node]) -> Node:
    return node.with_value([change(item) for item in node.value]) if isinstance(node.value, list) else node


def _all(node: Node, change: Callable[[Node], Node]) -> Node:
    return node.with_value({key: change(child) for key, child in node.map.items()}) if isinstance(node.value, dict) else node


def _each(node: Node, **changes: Callable[[Node], Node]) -> Node:
    """Apply the change called like a key to its value."""
    if not isinstance(node.value, dict):
        return node
    return node.with_value({key: changes[key](child) if key in changes else child for key, child in node.map.items()})
