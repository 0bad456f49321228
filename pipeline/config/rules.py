"""A rule between the parts of a config that is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.problems import Complaint
from pipeline.config.tree import Path, shown


@dataclass(frozen=True)
class Rule:
    """A complaint, and the other values that it rests on."""

    complaint: Complaint
    rests_on: tuple[Path, ...] = ()

    @property
    def values(self) -> tuple[Path, ...]:
        return (self.complaint.path, *self.rests_on)


def broken(path: Path, expected: str, got: object, *rests_on: Path, valid: Sequence[str] = ()) -> Rule:
    return Rule(Complaint(path, expected, got if isinstance(got, str) else shown(got), tuple(valid)), rests_on)
