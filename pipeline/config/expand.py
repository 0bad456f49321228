"""Expand a config to its long form: short forms, `defaults`, size presets and names that follow from others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from fewstep.config.network import SIZES
from models.family import FAMILIES
from models.stepwise.system import StepwiseSystem
from models.training.recipe import TrainedSystem
from pipeline.config.searches import labelled_searches
from pipeline.config.seeds import with_seeds
from pipeline.config.texts import FORMATS, VOCABULARY_FILES
from pipeline.config.tree import Node, merge, tree
from pipeline.data.names import HUB
from pipeline.store.files import read_json

PRESETS: dict[str, dict[str, Any]] = {
    "summarization": {
        "corpus": {"filters": {"max_length": 10000, "max_ratio": 1.0, "ratio": "target"}},
        "defaults": {"training": {"max_tokens": 1023, "validation_metric": "rougeL"}},
        "evaluation": {"metrics": ["rouge1", "rouge2", "rougeL"]},
    }
}
"""Defaults that follow from a task. With `summarization` both languages are the same as well."""
FOREIGN = {"from", "marian", "bart", "fairseq", "command", "ctranslate2", "transformers", "openai", "ray_llm"}
"""Keys of teachers that are not trained."""
EMBEDDED_PAIRS = 500
"""Pairs of the validation text and of the test set that are added to an embedded training text."""


def expand(root: Node) -> Node:
    """Return the config in its long form. Values of a wrong shape are left as they are, for the validation."""
    top = _of_task(root.with_value({key: node for key, node in root.map.items() if node.value is not None})).map
    defaults = (
        _each(top["defaults"], search=partial(labelled_searches, StepwiseSystem.search_type))
        if "defaults" in top
        else root.child("defaults", {})
    )
    if "defaults" in top:
        top["defaults"] = defaults
    if "corpus" in top:
        listed = partial(_each, monolingual=_list)
        corpus = _each(top["corpus"], train=long_text, texts=_texts, validation=long_text, test=_texts, back_translation=listed)
        top["corpus"] = _with_embedded_texts(corpus)
    if "cluster" in top:
        top["cluster"] = _each(top["cluster"], microbatch_tokens=_zero)
    if "vocabulary" in top:
        top["vocabulary"] = _each(top["vocabulary"], **dict.fromkeys(VOCABULARY_FILES, _file))
    if "evaluation" in top:
        top["evaluation"] = _each(top["evaluation"], contrastive_pairs=_file)
    if "distillation" in top:
        top["distillation"] = _each(top["distillation"], monolingual=_list, **dict.fromkeys(FORMATS, _files))
    if "pretraining" in top:
        top["pretraining"] = _each(top["pretraining"], monolingual=_list, target_monolingual=_list)
    if "teacher" in top:
        top["teacher"] = _trained(top["teacher"], defaults, leave=("data", "mixture", "search", "initial_weights", "num_averaged"))
    systems = top.get("systems") or root.child("systems", {"autoregressive": _usual(root, "teacher" in top)})
    top["systems"] = _all(systems, lambda node: _system(node, defaults))
    return root.with_value(_follow(root, with_seeds(top)))


def _with_embedded_texts(corpus: Node) -> Node:
    """Add an embedded validation text and test set where the training text is embedded and the config names none."""
    train = corpus.map.get("train") if isinstance(corpus.value, dict) else None
    if train is None or not isinstance(train.value, dict) or "embedded" not in train.map:
        return corpus
    usual = tree({"validation": {"embedded": EMBEDDED_PAIRS}, "test": {"test": {"embedded": EMBEDDED_PAIRS}}}, train.where)
    return corpus.with_value({**{key: node for key, node in usual.map.items() if key not in corpus.map}, **corpus.map})


def _of_task(root: Node) -> Node:
    """Merge the config over the defaults of its task."""
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
    """Fill in names that follow from others."""
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
    node = _with_family(node)
    family = _family(node)
    if family is None:  # the validation reports it
        return node
    node = _each(node, search=partial(labelled_searches, family.search_type), monolingual=_list)
    if not node.map.keys().isdisjoint({"use", "from"}):
        usual = {"search"} - _foreign(family)
        search = {key: value for key, value in defaults.map.items() if key in usual}
        return _over(defaults.with_value(search), node)
    return _trained(node, defaults)


def _with_family(node: Node) -> Node:
    """Add the family of a finished system, as its directory states it; the plan reports a directory that holds no system."""
    stated = node.map.get("from")
    if stated is None or not isinstance(stated.value, str) or "family" in node.map:
        return node
    family = read_json(Path(stated.value) / "system.json").get("family")
    return node.with_value({**node.map, "family": node.child("family", family)}) if family in FAMILIES else node


def _family(node: Node) -> type[TrainedSystem] | None:
    """Return the systems of a node's family; None if there is no such family."""
    if "family" not in node.map:
        return StepwiseSystem
    entry = FAMILIES.get(str(node.map["family"].value))
    return None if entry is None else entry.system


def _over(defaults: Node, node: Node) -> Node:
    """Merge a system over the defaults, except that its searches replace theirs."""
    hidden = {"search"} & node.map.keys()
    return merge(defaults.with_value({key: value for key, value in defaults.map.items() if key not in hidden}), node)


def _trained(node: Node, defaults: Node, leave: tuple[str, ...] = ()) -> Node:
    """Merge a trained model over the defaults and fill in its sizes. A system with its own `size` ignores sizes of the defaults."""
    family = _family(node)
    if not isinstance(node.value, dict) or not FOREIGN.isdisjoint(node.map) or family is None:
        return node
    hidden = {*leave, *(SIZES["tiny"] if "size" in node.map else ()), *_foreign(family)}
    usual = {key: value for key, value in defaults.map.items() if key not in hidden}
    if "training" in usual:
        usual["training"] = _without_task_metric(usual["training"], family)
    merged = _over(defaults.with_value(usual), node)
    size = merged.map.get("size")
    preset = {**SIZES.get("tiny" if size is None else str(size.value), {}), **family.presets}
    filled = {key: Node(value, (size or merged).where, (*node.path, key)) for key, value in preset.items()}
    return _with_training_presets(merged.with_value({**filled, **merged.map}), family)


def _without_task_metric(training: Node, family: type[TrainedSystem]) -> Node:
    """Drop the metric of outputs from the defaults of `training`, for a family whose candidates are compared by another metric."""
    metric = training.map.get("validation_metric")
    if metric is None or metric.value == "loss" or "validation_metric" not in family.training_presets:
        return training
    return training.with_value({key: value for key, value in training.map.items() if key != "validation_metric"})


def _foreign(family: type[TrainedSystem]) -> set[str]:
    """Keys of `defaults`, which describe a system of the teacher's family, that do not apply to systems of another family."""
    if family is StepwiseSystem:
        return set()
    return {f.name for f in fields(StepwiseSystem)} - {f.name for f in fields(family)} | {"search", *family.presets}


def _with_training_presets(node: Node, family: type[TrainedSystem]) -> Node:
    """Fill in the values of `training` that a family has unless others are stated."""
    training = node.map.get("training") or node.child("training", {})
    missing = {key: value for key, value in family.training_presets.items() if key not in training.map}
    if not missing or not isinstance(training.value, dict):
        return node
    filled = {key: training.child(key, value) for key, value in missing.items()}
    return node.with_value({**node.map, "training": training.with_value({**training.map, **filled})})


def _texts(node: Node) -> Node:
    return _all(node, long_text)


def long_text(node: Node) -> Node:
    """Return a parallel text in its long form: lists of paths and names, and maps for URLs."""
    names = {"sacrebleu": _named, "mtdata": _list, "opus": _list}
    return _each(node, references=lambda n: _all_items(_list(n), _files), **names, **dict.fromkeys(FORMATS, _files))


def _named(node: Node) -> Node:
    """Expand a name to a map with the key `name`."""
    return node.with_value({"name": node}) if isinstance(node.value, str) else node


def _zero(node: Node) -> Node:
    """Expand `auto` to 0, the number that leaves a choice to the run."""
    return node.with_value(0) if node.value == "auto" else node


def _list(node: Node) -> Node:
    """Expand a single string to a list of one."""
    return node.with_value([node]) if isinstance(node.value, str) else node


def _files(node: Node) -> Node:
    single = isinstance(node.value, dict) and not {"url", "path"}.isdisjoint(node.value)
    return _all_items(node.with_value([node]) if single else _list(node), _file)


def _file(node: Node) -> Node:
    """Expand a URL to a map with the key `url`."""
    is_url = isinstance(node.value, str) and ("://" in node.value or node.value.startswith(HUB))
    return node.with_value({"url": node}) if is_url else node


def _all_items(node: Node, change: Callable[[Node], Node]) -> Node:
    return node.with_value([change(item) for item in node.value]) if isinstance(node.value, list) else node


def _all(node: Node, change: Callable[[Node], Node]) -> Node:
    return node.with_value({key: change(child) for key, child in node.map.items()}) if isinstance(node.value, dict) else node


def _each(node: Node, **changes: Callable[[Node], Node]) -> Node:
    """Apply to each value the change that has the name of its key."""
    if not isinstance(node.value, dict):
        return node
    return node.with_value({key: changes[key](child) if key in changes else child for key, child in node.map.items()})
