"""The native engine: in memory for small texts, else as map and reduce over shards. The links are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.fast_align.em import last_pass, passes
from kernels.fast_align.model import AlignmentModel
from stages.align.sharded import align_sharded
from stages.align.text import DIRECTIONS, Direction, Job, fit_record, load_json, pass_record, report_pass, whole_text
from stages.context import StepContext
from stages.errors import DataError, TransientError
from stages.shared.shards import rows_of

if TYPE_CHECKING:
    from fewstep_native import I64, AlignedLinks

IN_MEMORY_BYTES = 1 << 26
"""Total size of text shards up to which a text is aligned in memory, each direction by one worker (ten to forty bytes of memory for
a byte of text). A kill then loses the unfinished directions, a few seconds of work."""


def align_natively(job: Job, context: StepContext) -> dict[str, Any]:
    """Write the links and models of both directions, and return their entries of `align.json`.

    Raises DataError for a text without pairs that have words on both sides.
    """
    small = sum(shard.stat().st_size for shard in job.shards) <= IN_MEMORY_BYTES
    fitted = _align_in_memory(job, context) if small else align_sharded(job, context)
    for direction in DIRECTIONS:
        if not fitted[direction]["target_words"]:
            raise DataError(
                f"align: expected pairs with words on both sides, got none among {sum(map(rows_of, job.shards))} "
                f"({fitted[direction]['empty']} with an empty side, {fitted[direction]['too_long']} longer than "
                f"alignment.max_length = {job.config.max_length}); check the text, or increase alignment.max_length"
            )
    return fitted


def _align_in_memory(job: Job, context: StepContext) -> dict[str, Any]:
    missing = [direction for direction in DIRECTIONS if not job.state(direction, "fitted.json").exists()]
    for done, _ in enumerate(context.workers.map(make_whole, job, missing), 1):
        context.progress(len(DIRECTIONS) - len(missing) + done, len(DIRECTIONS), "directions")
        if context.stop_requested() and done < len(missing):
            raise TransientError("asked to stop: the links of the finished direction are kept")
    fitted: dict[str, Any] = {direction: load_json(job.state(direction, "fitted.json")) for direction in DIRECTIONS}
    for number in range(job.config.iterations):
        report_pass(context, number, {direction: fitted[direction]["passes"][number] for direction in DIRECTIONS})
    return fitted


def make_whole(job: Job) -> Callable[[Direction], None]:
    """Return a function that aligns the whole text in one direction."""
    return partial(_align_whole, job)


def _align_whole(job: Job, direction: Direction) -> None:
    """Fit and align all shards in one direction."""
    from fewstep.native import fewstep_native

    options = job.options(direction)
    text = whole_text(job, range(len(job.shards)))
    aligner = fewstep_native.Aligner(
        text, options.reverse, options.native(), options.tension, keep_columns=True, threads=options.threads
    )
    statistics = list(passes(aligner, options))
    found = aligner.align(margins=False, threads=options.threads)
    statistics.append(last_pass(found, aligner.target_words))
    model = AlignmentModel(aligner.model())
    model.save(job.context.directory / f"{direction}.align")
    starts, _ = text.ids(not options.reverse)
    _save_by_shard(job, direction, starts, found)
    record = fit_record(
        [pass_record(one) for one in statistics],
        tension=model.tension,
        length_ratio=model.length_ratio,
        counts={
            "target_words": aligner.target_words,
            "empty": aligner.empty,
            "too_long": aligner.long,
            "cells": model.cells,
            "near_ties": found.near_ties,
        },
    )
    job.save_json(job.state(direction, "fitted.json"), record)


def _save_by_shard(job: Job, direction: Direction, starts: I64, found: AlignedLinks) -> None:
    sources = found.sources()
    row = 0
    for shard, path in enumerate(job.shards):
        end = row + rows_of(path)
        job.save(job.links(direction, shard, "sources"), sources[starts[row] : starts[end]])
        job.save(job.links(direction, shard, "starts"), starts[row : end + 1] - starts[row])
        row = end
