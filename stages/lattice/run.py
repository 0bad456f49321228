"""Run the lattice stage."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fewstep.candidates import TableSummary
from stages.context import StepContext
from stages.errors import DataError, TransientError
from stages.lattice import LatticeConfig, LatticeInputs
from stages.lattice.counts import Job, groups_of, make_counter, make_finisher
from stages.lattice.recall import record


def run(inputs: LatticeInputs, config: LatticeConfig, context: StepContext) -> None:
    """Write `tables.bin` and `lattice.json`; recall as metrics, a table and a figure. Runs that an attempt counted are kept.

    The bytes are the same for any shards and workers. Raises DataError when there is no link to count, ArtifactError for shards and
    links that are damaged or do not belong together, TransientError when it was asked to stop (what was counted is kept).
    """
    job = Job(inputs, config, context.for_workers())
    groups = groups_of(inputs)
    total, done = sum(group.rows for group in groups), 0
    for index, _ in context.workers.map(make_counter, job, groups):
        done += groups[index].rows
        context.progress(done, total, "pairs")
        if context.stop_requested() and done < total:
            raise TransientError(f"asked to stop: the links of {done} of {total} pairs are counted and kept")
    ((_, (summary, recall)),) = context.workers.map(make_finisher, job, [groups])
    if not summary.linked:
        raise DataError(
            f"lattice: expected links within {config.max_offset} positions in pairs of at most {config.max_length} pieces, "
            f"got none: {summary.pairs} such pairs, {summary.empty} with an empty side, {summary.too_long} that are longer"
        )
    record(recall, context)
    context.write_json(context.directory / "lattice.json", describe(summary))


def describe(summary: TableSummary) -> dict[str, Any]:
    """`lattice.json`: the summary of the table, and what share of the links it lacks."""
    values = asdict(summary) | {"vocabulary": summary.vocabulary.hex(), "links": summary.links.hex()}
    seen = summary.linked + summary.dropped
    return values | {"dropped_share": summary.dropped / seen, "cut_share": (summary.linked - summary.kept) / summary.linked}
