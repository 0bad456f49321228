"""A broken rule between the parts of a config, and its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fewstep.config.problems import KeyPath, Problem
from pipeline.config.errors import Complaint
from pipeline.config.tree import shown


@dataclass(frozen=True)
class Rule:
    """A complaint, and the other values that it depends on."""

    complaint: Complaint
    rests_on: tuple[KeyPath, ...] = ()

    @property
    def values(self) -> tuple[KeyPath, ...]:
        """All values that the rule depends on."""
        return (self.complaint.path, *self.rests_on)


def broken(path: KeyPath, expected: str, got: object, *rests_on: KeyPath, valid: Sequence[str] = ()) -> Rule:
    """Return a rule that the value at `path` breaks."""
    return Rule(Complaint(path, expected, got if isinstance(got, str) else shown(got), tuple(valid)), rests_on)


def placed(path: KeyPath, problems: Iterable[Problem]) -> Iterator[Rule]:
    """Yield the problems of the object at `path`."""
    for problem in problems:
        yield broken((*path, *problem.path), problem.expected, problem.got, valid=problem.valid)


def overlap(one: KeyPath, other: KeyPath) -> bool:
    """Return whether one path leads to the value at the other, or to a part of it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]
