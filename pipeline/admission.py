"""Which step may start now: what it asks for against what the machines have and what is held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stages.errors import StageError
from stages.stage import Resources, Stage

Node = dict[str, float]


def settle(stage: Stage[Any, Any, Any], asked: Resources, nodes: list[Node], free: Node) -> Resources | None:
    """What the step gets if it starts now, with `workers` and `cpus` filled in; None if it has to wait.

    A training gets exactly what it asks for. A map takes as many workers as are free, at least one.
    Raises StageError when the machines could never hold it.
    """
    if stage.exclusive and free != total(nodes):
        return None
    largest = max(node.get("CPU", 0.0) for node in nodes)
    cpus = asked.cpus or (max(1.0, largest // (asked.workers or 1)) if stage.trains else 1.0)
    each = replace(asked, cpus=cpus, workers=1)
    room = sum(_copies(each, node) for node in nodes)
    gang = (asked.workers or 1) if stage.trains else 1
    if room < gang:
        have = "; ".join(map(_describe_node, nodes))
        raise StageError(
            f"cluster.resources.{stage.name}: asks for {gang} x {describe(each)}, the machines have {have}; "
            "ask for less or add a node"
        )
    now = min(room, _copies(each, free))
    if now < gang:
        return None
    if stage.distributes and not stage.trains:
        return replace(each, workers=min(now, asked.workers or room))
    return replace(each, workers=gang)


def held(resources: Resources) -> Node:
    """What a step with these resources takes from the machines."""
    workers = resources.workers or 1
    return {name: amount * workers for name, amount in _needs(resources).items()}


def total(nodes: list[Node]) -> Node:
    """All nodes together."""
    names = {name for node in nodes for name in node}
    return {name: sum(node.get(name, 0.0) for node in nodes) for name in names}


def minus(free: Node, taken: Node) -> Node:
    """What is left."""
    return {name: amount - taken.get(name, 0.0) for name, amount in free.items()}


def describe(resources: Resources) -> str:
    """For messages: `2 CPU + 1 GPU`."""
    return " + ".join(f"{amount:g} {name}" for name, amount in _needs(resources).items())


def _needs(resources: Resources) -> Node:
    needs = {"CPU": resources.cpus or 0.0, "GPU": resources.gpus, "memory": resources.memory_gib * 2**30, **resources.custom}
    return {name: amount for name, amount in needs.items() if amount}


def _copies(each: Resources, room: Node) -> int:
    """How often `each` fits."""
    return int(min((room.get(name, 0.0) + 1e-6) // amount for name, amount in _needs(each).items()))


def _describe_node(node: Node) -> str:
    return " + ".join(
        f"{amount:g} {name}" for name, amount in sorted(node.items()) if not name.startswith(("node:", "object_store", "memory"))
    )
