"""Counts of n-grams as map over groups of shards, for texts beyond memory. Finished groups are not counted again.

Below `checkpoints/` each group has its words in order of first appearance (`words/`); the words of the whole text (`words.txt`)
follow from these; then each group has its counts, a sorted run (`counts/`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import durable
from kernels.ngram import count_ngrams, open_counts, read_counts, text_words
from stages.artifacts import CHECKPOINTS
from stages.context import StepContext, WorkerContext
from stages.errors import ArtifactError, DataError, StageError, unwritable
from stages.ngram import NgramConfig, NgramInputs
from stages.ngram.text import Lines, check_inputs, training_shards
from stages.shared.phases import run_phase
from stages.shared.shards import row_counts

if TYPE_CHECKING:
    from fewstep_native import NgramCounts


def count_groups(job: Job, context: StepContext) -> None:
    """Count all groups on the workers of the step."""
    if not _all_words(job).exists():
        missing = [group for group in job.groups if not _words_file(job, group).exists()]
        run_phase(context, make_collector, job, missing, "groups of words")
        run_phase(context, make_merger, job, [job.groups], "words merged")
    run_phase(context, make_counter, job, job.groups, "groups counted")


def open_groups(job: Job) -> NgramCounts:
    """Return the counts of all groups. Raises ArtifactError for damaged ones."""
    with explained(job, _all_words(job)):
        return open_counts([_counts_file(job, group) for group in job.groups], _all_words(job))


def _words_file(job: Job, group: Group) -> Path:
    return job.state("words", f"{group.name}.txt")


def _all_words(job: Job) -> Path:
    return job.state("words.txt")


def _counts_file(job: Job, group: Group) -> Path:
    return job.state("counts", f"{group.name}.run")


def make_collector(job: Job) -> Callable[[Group], None]:
    """Return a function that collects the words of a group."""
    return partial(_collect, job, Lines(job.inputs, job.config), training_shards(job.inputs))


def _collect(job: Job, lines: Lines, shards: list[Path], group: Group) -> None:
    text = lines.text(shards[group.first : group.end])
    words = text_words(text, skip_special=True, threads=job.context.resources.threads)
    _write(job, _words_file(job, group), lambda path: path.write_bytes(words))


def make_merger(job: Job) -> Callable[[tuple[Group, ...]], None]:
    """Return a function that merges the words of groups in order of first appearance."""
    return partial(_merge, job)


def _merge(job: Job, groups: tuple[Group, ...]) -> None:
    words: dict[bytes, None] = {}
    for group in groups:
        path = _words_file(job, group)
        with explained(job, path):
            words.update(dict.fromkeys(path.read_bytes().splitlines(keepends=True)))
    _write(job, _all_words(job), lambda path: path.write_bytes(b"".join(words)))


def make_counter(job: Job) -> Callable[[Group], None]:
    """Return a function that counts a group, unless an earlier attempt did."""
    return partial(_count, job, Lines(job.inputs, job.config), training_shards(job.inputs))


def _count(job: Job, lines: Lines, shards: list[Path], group: Group) -> None:
    path = _counts_file(job, group)
    if _is_counted(job, group):
        return
    count = partial(
        count_ngrams,
        lines.text(shards[group.first : group.end]),
        _all_words(job),
        order=job.config.order,
        skip_special=True,
        threads=job.context.resources.threads,
    )
    _write(job, path, count)


def _is_counted(job: Job, group: Group) -> bool:
    """Whether an earlier attempt counted the group, and the file is whole."""
    try:
        counted = read_counts(_counts_file(job, group))
    except (OSError, ValueError):
        return False
    return (counted.order, counted.sentences) == (job.config.order, group.rows)


def _write(job: Job, path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically and durably."""
    with explained(job, path):
        durable.make_directory(path.parent)
        durable.write_whole(path, write, job.context.temporary(path))


@contextmanager
def explained(job: Job, path: Path) -> Iterator[None]:
    """Convert errors of kernels to errors of stages: `path` is the file that is read or written."""
    try:
        yield
    except MemoryError as error:
        raise StageError(f"ngram: {error} (option ngram.engine)") from error
    except OSError as error:
        raise unwritable(path, error) from error
    except (ValueError, RuntimeError) as error:
        raise ArtifactError(f"{path}: {error}; remove {job.state()} and run again") from error


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
    groups = []
    first = 0
    count = 0
    for end, more in enumerate(rows, 1):
        count += more
        if count >= RUN_ROWS or end == len(rows):
            groups.append(Group(first, end, count))
            first = end
            count = 0
    return groups
