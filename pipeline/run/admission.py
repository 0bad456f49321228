"""Admission of steps: whether a step may start now, given its resource request, the nodes and the running steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pipeline.plan.step import Step
from stages.errors import StageError
from stages.stage import Stage
from stages.workers import Resources

Node = dict[str, float]
"""Amounts of resources: CPU, GPU, memory (bytes) and custom resources."""

ADDRESS = "node:"
"""Prefix of the resource by which Ray names a node."""

Demand = tuple[Stage[Any, Any, Any], Resources]
"""A stage with the resources that the config requests for it, or that it was granted."""


class Admission(NamedTuple):
    """The resources that a step is granted, and the nodes on which it may not run."""

    granted: Resources
    excluded_nodes: tuple[str, ...]


def admit(demand: Demand, nodes: Mapping[str, Node], running: Sequence[Demand], pending: Sequence[Demand]) -> Admission | None:
    """Return the resources of a step if it starts now in addition to the `running` ones, or None if it has to wait.

    Nodes with GPUs or custom resources that other steps request are reserved for these while other nodes exist. If there are no
    other nodes, the CPUs that a pending step of that kind requests are left free.

    Raises StageError if the nodes could never run the step.
    """
    stage, requested = demand
    free = _free(nodes.values(), running)
    # These may use every node; other steps are kept from the nodes that they need.
    if _scarce(requested) or stage.exclusive:
        return _admission(allocate(stage, requested, list(nodes.values()), free))
    scarce = {name for _, other in (*running, *pending) for name in _scarce(other)}
    reserved = tuple(name for name, node in nodes.items() if any(node.get(one) for one in scarce))
    others = [node for name, node in nodes.items() if name not in reserved]
    if reserved and _ever_fits(stage, requested, others):
        unreserved = _free(others, [one for one in running if not _scarce(one[1])])
        return _admission(allocate(stage, requested, others, unreserved), reserved)
    cpus = max(
        (total_of(replace(other, workers=_gang(one, other)))["CPU"] for one, other in pending if _scarce(other) and other.cpus),
        default=0.0,
    )
    granted = allocate(stage, requested, list(nodes.values()), minus(free, {"CPU": cpus}))
    # While nothing runs, what is kept free for a pending step is given out, since it may be waited for in vain.
    return _admission(granted if granted or running else allocate(stage, requested, list(nodes.values()), free))


def reduced(demand: Demand, nodes: Mapping[str, Node]) -> Resources | None:
    """Return the request of a training with as many workers as the nodes can hold, from `min_workers` to `workers`.

    None if the nodes cannot hold `min_workers`, or the request names none.
    """
    stage, requested = demand
    if not stage.trains or requested.min_workers is None:
        return None
    worker = _worker(stage, requested, list(nodes.values()))
    workers = min(_gang(stage, requested), sum(_copies(worker, node) for node in nodes.values()))
    return replace(worker, workers=workers) if workers >= requested.min_workers else None


def allocate(stage: Stage[Any, Any, Any], requested: Resources, nodes: Sequence[Node], free: Node) -> Resources | None:
    """Return the resources of a step if it starts now, with `workers` and `cpus` filled in, or None if it has to wait.

    A training gets exactly what it requests. A map gets as many workers as fit, at least one.
    Raises StageError if the nodes could never run the step.
    """
    if stage.exclusive and free != total(nodes):
        return None
    worker = _worker(stage, requested, nodes)
    gang = _gang(stage, requested)
    capacity = sum(_copies(worker, node) for node in nodes)
    if capacity < gang:
        have = "; ".join(filter(None, map(_describe_node, nodes))) or "nothing: no machine is left"
        raise StageError(
            f"cluster.resources.{stage.name}: asks for {gang} x {describe(worker)}, the machines have {have}; "
            "ask for less or add a node (docs/guide/cluster.md#steps-that-never-fit)"
        )
    fitting = min(capacity, _copies(worker, free))
    if fitting < gang:
        return None
    if stage.distributes and not stage.trains:
        return replace(worker, workers=min(fitting, requested.workers or capacity))
    return replace(worker, workers=gang)


def _worker(stage: Stage[Any, Any, Any], requested: Resources, nodes: Iterable[Node]) -> Resources:
    """Return the resources of one worker.

    A training worker without a requested number of CPUs gets all CPUs of the largest node that has its other resources.
    """
    if requested.cpus or not stage.trains:
        return replace(requested, cpus=requested.cpus or 1.0, workers=1)
    others = _amounts(replace(requested, cpus=None))
    sizes = [node.get("CPU", 0.0) for node in nodes if all(node.get(name, 0.0) >= amount for name, amount in others.items())]
    return replace(requested, cpus=max(1.0, max(sizes, default=0.0) // (requested.workers or 1)), workers=1)


def _gang(stage: Stage[Any, Any, Any], requested: Resources) -> int:
    """Return the number of workers that have to start together."""
    return (requested.workers or 1) if stage.trains else 1


def _ever_fits(stage: Stage[Any, Any, Any], requested: Resources, nodes: Sequence[Node]) -> bool:
    worker = _worker(stage, requested, nodes)
    return sum(_copies(worker, node) for node in nodes) >= _gang(stage, requested)


def _scarce(requested: Resources) -> set[str]:
    """Return the requested kinds of resources that only some nodes have."""
    return _amounts(requested).keys() - {"CPU", "memory"}


def _free(nodes: Iterable[Node], running: Iterable[Demand]) -> Node:
    free = total(nodes)
    for _, granted in running:
        free = minus(free, total_of(granted))
    return free


def _admission(granted: Resources | None, excluded_nodes: tuple[str, ...] = ()) -> Admission | None:
    return None if granted is None else Admission(granted, excluded_nodes)


def total_of(resources: Resources) -> Node:
    """Return the amounts that all workers of a step hold together."""
    workers = resources.workers or 1
    return {name: amount * workers for name, amount in _amounts(resources).items()}


def total(nodes: Iterable[Node]) -> Node:
    """Return the amounts of all nodes together."""
    nodes = list(nodes)
    names = {name for node in nodes for name in node}
    return {name: sum(node.get(name, 0.0) for node in nodes) for name in names}


def minus(free: Node, taken: Node) -> Node:
    """Return the amounts that are left."""
    return {name: amount - taken.get(name, 0.0) for name, amount in free.items()}


def describe(resources: Resources) -> str:
    """Return the resources of one worker for messages, such as `2 CPU + 1 GPU`."""
    return _listed(_amounts(resources))


def _amounts(resources: Resources) -> Node:
    """Return the amounts of one worker, without those that are zero."""
    found = {"CPU": resources.cpus or 0.0, "GPU": resources.gpus, "memory": resources.memory_gib * 2**30, **resources.custom}
    return {name: amount for name, amount in found.items() if amount}


def _copies(worker: Resources, capacity: Node) -> int:
    """Return the number of such workers that fit."""
    return int(min((capacity.get(name, 0.0) + 1e-6) // amount for name, amount in _amounts(worker).items()))


def _describe_node(node: Node) -> str:
    """Return what a node has, such as `10.0.0.7: 16 CPU + 1 GPU + 64 GiB memory`. Ray names each node by a resource."""
    own = (name.removeprefix(ADDRESS) for name in node if name.startswith(ADDRESS) and not name.startswith(f"{ADDRESS}__"))
    shown = {name: amount for name, amount in sorted(node.items()) if not name.startswith((ADDRESS, "object_store"))}
    address = next(own, "")
    prefix = f"{address}: " if address else ""
    return prefix + (_listed(shown) or "no resources") if node else ""


def _listed(amounts: Node) -> str:
    return " + ".join(_amount(name, amount) for name, amount in amounts.items() if math.isfinite(amount))


def _amount(name: str, amount: float) -> str:
    return f"{amount / 2**30:.4g} GiB memory" if name == "memory" else f"{amount:g} {name}"


def shortages(steps: Iterable[Step], requests: Mapping[str, Resources], nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """Return the steps that ask for more than all machines have, by the reason.

    `requests` are the resources by the name of a stage, `nodes` the machines by name. A training with `min_workers` may also have
    fewer workers.
    """
    machines = list(nodes.values())
    found: dict[str, list[str]] = {}
    for step in steps:
        requested = requests.get(step.stage.name, Resources())
        if reduced((step.stage, requested), nodes):
            continue
        try:
            allocate(step.stage, requested, machines, total(machines))
        except StageError as error:
            found.setdefault(str(error), []).append(step.name)
    return found
