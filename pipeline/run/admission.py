"""Which step may start now: what it asks for against what the machines have and what is held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages.errors import StageError
from stages.stage import Stage
from stages.workers import Resources

Node = dict[str, float]


Wish = tuple[Stage[Any, Any, Any], Resources]
"""A stage, and what the config asks for it or what it was granted."""


def admit(
    wish: Wish, nodes: Mapping[str, Node], running: Sequence[Wish], coming: Sequence[Wish]
) -> tuple[Resources, tuple[str, ...]] | None:
    """What the step gets if it starts now beside those `running`, and the nodes that it is kept off; None if it has to wait.

    Machines with GPUs (or custom resources) that some step asks for are left to such steps while there are others; where there
    are no others, the CPUs that a coming one of them states are left free.
    Raises StageError when the machines could never hold the step.
    """
    stage, asked = wish
    free = _free(nodes.values(), running)
    if _special(asked) or stage.exclusive:
        return _off((), settle(stage, asked, list(nodes.values()), free))
    scarce = {name for _, other in (*running, *coming) for name in _special(other)}
    apart = tuple(name for name, node in nodes.items() if any(node.get(one) for one in scarce))
    others = [node for name, node in nodes.items() if name not in apart]
    if apart and _could_hold(stage, asked, others):
        return _off(apart, settle(stage, asked, others, _free(others, [one for one in running if not _special(one[1])])))
    kept = max(
        (held(replace(other, workers=_gang(one, other)))["CPU"] for one, other in coming if _special(other) and other.cpus),
        default=0.0,
    )
    granted = settle(stage, asked, list(nodes.values()), minus(free, {"CPU": kept}))
    return _off((), granted if granted or running else settle(stage, asked, list(nodes.values()), free))


def settle(stage: Stage[Any, Any, Any], asked: Resources, nodes: Sequence[Node], free: Node) -> Resources | None:
    """What the step gets if it starts now, with `workers` and `cpus` filled in; None if it has to wait.

    A training gets exactly what it asks for. A map takes as many workers as are free, at least one.
    Raises StageError when the machines could never hold it.
    """
    if stage.exclusive and free != total(nodes):
        return None
    each, gang = _each(stage, asked, nodes), _gang(stage, asked)
    room = sum(_copies(each, node) for node in nodes)
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


def _each(stage: Stage[Any, Any, Any], asked: Resources, nodes: Iterable[Node]) -> Resources:
    """One worker. A training worker that states no CPUs gets all those of the largest node that has what else it asks for."""
    if asked.cpus or not stage.trains:
        return replace(asked, cpus=asked.cpus or 1.0, workers=1)
    besides = _needs(replace(asked, cpus=None))
    sizes = [node.get("CPU", 0.0) for node in nodes if all(node.get(name, 0.0) >= amount for name, amount in besides.items())]
    return replace(asked, cpus=max(1.0, max(sizes, default=0.0) // (asked.workers or 1)), workers=1)


def _gang(stage: Stage[Any, Any, Any], asked: Resources) -> int:
    """How many workers must be there at once."""
    return (asked.workers or 1) if stage.trains else 1


def _could_hold(stage: Stage[Any, Any, Any], asked: Resources, nodes: Sequence[Node]) -> bool:
    each = _each(stage, asked, nodes)
    return sum(_copies(each, node) for node in nodes) >= _gang(stage, asked)


def _special(asked: Resources) -> set[str]:
    """What it asks for that only some machines have."""
    return _needs(asked).keys() - {"CPU", "memory"}


def _free(nodes: Iterable[Node], running: Iterable[Wish]) -> Node:
    free = total(nodes)
    for _, granted in running:
        free = minus(free, held(granted))
    return free


def _off(nodes: tuple[str, ...], granted: Resources | None) -> tuple[Resources, tuple[str, ...]] | None:
    return None if granted is None else (granted, nodes)


def held(resources: Resources) -> Node:
    """What a step with these resources takes from the machines."""
    workers = resources.workers or 1
    return {name: amount * workers for name, amount in _needs(resources).items()}


def total(nodes: Iterable[Node]) -> Node:
    """All nodes together."""
    nodes = list(nodes)
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
