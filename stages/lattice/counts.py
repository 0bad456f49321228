"""Count the links of groups of shards, and merge the counts into candidate tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import durable
from fewstep.candidates import CandidateTables, CountSummary, TableSummary
from fewstep.vocabulary import RESERVED, vocabulary_digest
from kernels.candidates import CountOptions, Sentences, TableOptions, count_candidates, merge_candidates, read_counts
from stages.artifacts import CHECKPOINTS
from stages.context import Context, WorkerContext
from stages.errors import ArtifactError, unwritable
from stages.lattice.links import aligner_of, forward_links, sentences
from stages.shared.shards import read_shard, row_counts, shard_path, shard_paths

if TYPE_CHECKING:
    from stages.lattice import LatticeConfig, LatticeInputs
    from stages.lattice.recall import Recall

RUN_ROWS = 1 << 17
"""Approximate number of pairs that are counted together. Large groups repeat fewer entries, small groups lose less in a kill."""

TABLES = "tables.bin"


@dataclass(frozen=True)
class Job:
    """Inputs and config of all workers."""

    inputs: LatticeInputs
    config: LatticeConfig
    context: WorkerContext


class Group(NamedTuple):
    """Shards `first` to `end` (exclusive), which are counted together."""

    first: int
    end: int
    rows: int

    def path(self, context: Context) -> Path:
        """Return the file with the counts of the group, which is deleted when the step is finished."""
        return context.directory / CHECKPOINTS / "counts" / f"{self.first:05d}-{self.end:05d}.run"


def groups_of(inputs: LatticeInputs) -> list[Group]:
    """Group all shards of the training tokens. Raises ArtifactError when the links are not those of these tokens."""
    rows, linked = row_counts(inputs.tokens.path), row_counts(inputs.links.path)
    if rows != linked:
        raise ArtifactError(
            f"{inputs.links.path}: expected links of {sum(rows)} pairs in {len(rows)} shards, as in {inputs.tokens.path}, "
            f"got {sum(linked)} in {len(linked)}; align these tokens"
        )
    groups = []
    first = 0
    for index in range(len(rows)):
        count = sum(rows[first : index + 1])
        if count >= RUN_ROWS or index + 1 == len(rows):
            groups.append(Group(first, index + 1, count))
            first = index + 1
    return groups or [Group(0, 0, 0)]


def make_counter(job: Job) -> Callable[[Group], CountSummary]:
    """Return a function that counts a group of shards, unless an earlier attempt did."""
    sizes = json.loads((job.inputs.tokens.path / "tokens.json").read_text(encoding="utf-8"))
    options = CountOptions(
        source_size=sizes["source_size"],
        target_size=sizes["target_size"],
        max_offset=job.config.max_offset,
        max_length=job.config.max_length,
    )

    def count(group: Group) -> CountSummary:
        return counted(group, job.context) or _count(group, job, options)

    return count


def counted(group: Group, context: Context) -> CountSummary | None:
    """Return the summary of a group that an earlier attempt counted; None if its file is missing or damaged."""
    try:
        summary = read_counts(group.path(context))
    except (OSError, ValueError):
        return None
    return summary if summary.pairs + summary.empty + summary.too_long == group.rows else None


def _count(group: Group, job: Job, options: CountOptions) -> CountSummary:
    path = group.path(job.context)
    durable.make_directory(path.parent)
    pairs = [_read(job.inputs, index) for index in range(group.first, group.end)]
    source, target, links = (joined([pair[side] for pair in pairs]) for side in range(3))
    with explained(path, job.inputs.links.path):
        summary = count_candidates(source, target, links.values, job.context.temporary(path), options=options)
        durable.rename(job.context.temporary(path), path)
    return summary


def _read(inputs: LatticeInputs, index: int) -> tuple[Sentences, Sentences, Sentences]:
    """Source, target and links of a shard. Raises ArtifactError when a pair has a different number of links and target pieces."""
    tokens = read_shard(shard_path(inputs.tokens.path, index))
    path = shard_path(inputs.links.path, index)
    source = sentences(tokens["source"])
    target = sentences(tokens["target"])
    links = forward_links(path)
    if not np.array_equal(target.starts, links.starts):
        row = int(np.argmax(np.diff(target.starts) != np.diff(links.starts)))
        raise ArtifactError(
            f"{path}: row {row}: expected an entry for each of the {np.diff(target.starts)[row]} target pieces, "
            f"got {np.diff(links.starts)[row]}; align these tokens"
        )
    return source, target, links


def joined(parts: Sequence[Sentences]) -> Sentences:
    """Concatenate sentences."""
    starts = [np.zeros(1, np.int64)]
    end = 0
    for part in parts:
        starts.append(part.starts[1:] + end)
        end += len(part.values)
    return Sentences(np.concatenate([np.zeros(0, np.uint8), *(part.values for part in parts)]), np.concatenate(starts))


def make_finisher(job: Job) -> Callable[[Sequence[Group]], tuple[TableSummary, Recall]]:
    """Return a function that merges the counts of all groups and measures the recall of the tables."""
    from stages.lattice.recall import measure

    def finish(groups: Sequence[Group]) -> tuple[TableSummary, Recall]:
        inputs = job.inputs
        context = job.context
        aligner = aligner_of(inputs.links)
        options = TableOptions(
            top=job.config.top,
            reserved=len(RESERVED),
            tension=aligner.tension,
            backoff=job.config.backoff,
            vocabulary=vocabulary_digest(inputs.vocabulary.path),
        )
        path = context.directory / TABLES
        with explained(path, context.directory):
            merge_candidates([group.path(context) for group in groups], context.temporary(path), options=options)
            os.replace(context.temporary(path), path)
            tables = CandidateTables.load(path)
        validation = map(read_shard, shard_paths(inputs.validation.path))
        pairs = ((sentences(table["source"]), sentences(table["target"])) for table in validation)
        with explained(path, inputs.validation.path):
            recall = measure(tables, aligner, pairs, job.config.length_window, context.resources.threads)
        return tables.summary, recall

    return finish


@contextmanager
def explained(path: Path, culprit: Path) -> Iterator[None]:
    """Convert errors of kernels to errors of stages: `path` is the file that is written, `culprit` the source of the data."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error
    except ValueError as error:
        raise ArtifactError(f"{culprit}: {error}; remove the artifact and run again") from error
