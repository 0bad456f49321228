"""Steps that the machines of a cluster can never hold, found before a run begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipeline.plan.step import Step
from pipeline.run.admission import Node, allocate, reduced, total
from stages.errors import StageError
from stages.workers import Resources


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
