"""The job of the workers of an n-gram model, and its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stages.artifacts import CHECKPOINTS
from stages.context import StepContext, WorkerContext
from stages.errors import DataError
from stages.ngram import NgramConfig, NgramInputs
from stages.ngram.text import check_inputs
from stages.shared.shards import row_counts

RUN_ROWS = 1 << 17
"""Approximate number of sentences that are counted together. Large groups repeat fewer n-grams, small ones lose less in a kill."""


class Group(NamedTuple):
    """Shards `first` to `end` (exclusive) of the training texts, which are counted together."""

    first: int
    end: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.first:05d}-{self.end:05d}"


@dataclass(frozen=True)
class Job:
    """One model. It is picklable."""

    inputs: NgramInputs
    config: NgramConfig
    context: WorkerContext
    groups: tuple[Group, ...]

    @property
    def sentences(self) -> int:
        return sum(group.rows for group in self.groups)

    @property
    def in_parts(self) -> bool:
        """Whether the text is counted in parts, on all workers."""
        return self.config.engine == "native" and len(self.groups) > 1

    def state(self, *parts: str) -> Path:
        """Return the path of a file that later attempts find and that is deleted when the step is finished."""
        return self.context.directory.joinpath(CHECKPOINTS, *parts)


def open_job(inputs: NgramInputs, config: NgramConfig, context: StepContext) -> Job:
    """Return the job of a step. Raises StageError for inputs that do not fit the config, DataError for empty ones."""
    check_inputs(inputs, config)
    if list(config.prune) != sorted(config.prune) or not config.prune:
        raise DataError(f"ngram.prune: expected thresholds in ascending order, got {list(config.prune)}")
    rows = [count for part in inputs.training for count in row_counts(part.path)]
    measured = sum(row_counts(inputs.validation.path))
    if not sum(rows) or not measured:
        raise DataError(
            f"ngram: expected training and validation text, got {sum(rows)} and {measured} sentences; check the text files"
        )
    return Job(inputs, config, context.for_workers(), tuple(_grouped(rows)))


def _grouped(rows: list[int]) -> list[Group]:
    """Group shards with these numbers of rows."""
    groups, first, count = [], 0, 0
    for end, more in enumerate(rows, 1):
        count += more
        if count >= RUN_ROWS or end == len(rows):
            groups.append(Group(first, end, count))
            first, count = end, 0
    return groups
