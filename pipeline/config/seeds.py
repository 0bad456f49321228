"""Systems that are trained several times with other seeds: `seeds: [1, 2, 3]`.

The system NAME is trained with the first seed, and each further seed S adds a system NAME-seedS, with companions of the same seed.
A config that holds these systems already, such as a resolved one, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.training.recipe import TrainedSystem
from pipeline.config.checks.rules import Rule, broken
from pipeline.config.schema import RunConfig
from pipeline.config.systems import UsedSystem
from pipeline.config.tree import Node

REFERENCES = ("verifier", "drafter_system", "initial_weights")
"""Keys that name another system."""
TEACHER_KEYS = ("ensemble", "data")
"""Keys of the teacher that a system of the same network does not have, or has with another default."""


def replica(name: str, seed: int) -> str:
    """Return the name of the system `name` with a further seed."""
    return f"{name}-seed{seed}"


def replicas(seeds: tuple[int, ...], names: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the systems that differ in their seed alone, by the name of the first; those of one seed are left out."""
    groups = {name: [name, *(other for seed in seeds[1:] if (other := replica(name, seed)) in names)] for name in names}
    return {name: members for name, members in groups.items() if len(members) > 1}


def with_seeds(top: dict[str, Node]) -> dict[str, Node]:
    """Return the sections of a config in its long form with all systems of all seeds. Wrong values are left to the validation."""
    seeds = _seeds(top)
    systems = top["systems"].map
    if not seeds or not systems:
        return top
    originals = {name: node for name, node in systems.items() if not _is_replica(name, systems, seeds)}
    every = {name: _seeded(node, seeds[0]) for name, node in originals.items()}
    for seed in seeds[1:]:
        made = {name: _copy(node, seed, top) for name, node in originals.items()}
        known = {name for name, node in made.items() if node is not None}
        for name, node in made.items():
            if node is not None:
                every[replica(name, seed)] = systems.get(replica(name, seed)) or _with_references(node, known, seed)
    teacher = {"teacher": _seeded(top["teacher"], seeds[0])} if "teacher" in top else {}
    return {**top, **teacher, "systems": top["systems"].with_value(every)}


def _seeds(top: dict[str, Node]) -> list[int]:
    value = top["seeds"].value if "seeds" in top else None
    found = [node.value for node in value] if isinstance(value, list) else []
    return found if all(isinstance(seed, int) and not isinstance(seed, bool) for seed in found) else []


def _is_replica(name: str, systems: Mapping[str, Node], seeds: list[int]) -> bool:
    return any(name == replica(other, seed) for other in systems for seed in seeds[1:])


def _seeded(node: Node, seed: int) -> Node:
    """Return a trained system, or the teacher, with a seed; any other one as it is."""
    if not isinstance(node.value, dict) or {"use", "from"} & node.map.keys():
        return node
    training = node.map.get("training") or node.child("training", {})
    if not isinstance(training.value, dict):
        return node
    return node.with_value({**node.map, "training": training.with_value({**training.map, "seed": training.child("seed", seed)})})


def _copy(node: Node, seed: int, top: dict[str, Node]) -> Node | None:
    """Return a system with another seed; None for one that is trained elsewhere, or of several networks."""
    if not isinstance(node.value, dict) or "from" in node.map:
        return None
    if "use" not in node.map:
        return _seeded(node, seed)
    teacher = top.get("teacher")
    if node.map["use"].value != "teacher" or teacher is None or not isinstance(teacher.value, dict) or "from" in teacher.map:
        return None
    network = {key: value for key, value in teacher.map.items() if key not in TEACHER_KEYS}
    searches = {key: value for key, value in node.map.items() if key == "search"}
    return _seeded(node.with_value({**network, **searches}), seed)


def _with_references(node: Node, names: set[str], seed: int) -> Node:
    found = dict(node.map)
    for key in REFERENCES:
        if key in found and isinstance(found[key].value, str) and found[key].value in names:
            found[key] = found[key].with_value(replica(str(found[key].value), seed))
    return node.with_value(found)


def seed_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield seeds that occur twice, and systems of further seeds that differ from the first in anything else."""
    if len(set(config.seeds)) < len(config.seeds):
        yield broken(("seeds",), "different seeds", str(list(config.seeds)))
    for name, (_, *others) in replicas(config.seeds, config.systems).items():
        first = config.systems[name]
        expected = config.teacher if isinstance(first, UsedSystem) else first
        for other in others:
            found = config.systems[other]
            if not isinstance(found, TrainedSystem) or expected is None or not hasattr(expected, "network"):
                continue
            for key, value in vars(expected.network).items():
                if getattr(found.network, key, None) != value:
                    text = f"{value} as {name!r} has, of which it is another seed"
                    yield broken(("systems", other, key), text, getattr(found.network, key, None), ("systems", name))
            if list(found.search) != list(first.search):
                text = f"the searches of {name!r}, of which it is another seed: {', '.join(first.search)}"
                yield broken(("systems", other, "search"), text, ", ".join(found.search), ("systems", name))
