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
    """Write `tables.bin` and `lattice.json`, and recall as metrics, a table and a figure.

    The bytes do not depend on shards and workers. Raises DataError when there is no link to count, ArtifactError for shards and
    links that are damaged or do not belong together. Raises TransientError when the step was asked to stop; counted groups are
    kept.
    """
    job = Job(inputs, config, context.for_workers())
    groups = groups_of(inputs)
    total = sum(group.rows for group in groups)
    done = 0
    for index, _ in context.workers.map(make_counter, job, groups):
        done += groups[index].rows
        context.progress(done, total, "pairs")
        if context.stop_requested() and done < total:
            raise TransientError(f"asked to stop: the links of {done} of {total} pairs are counted and kept")
    ((_, (summary, recall)),) = context.workers.map(make_finisher, job, [groups])
    if not summary.linked:
        raise DataError(
            f"lattice: expected links within {config.max_offset} positions in pairs of at most {config.max_length} pieces, "
            f"got none: {summary.pairs} such pairs, {summary.empty} with an empty side, {summary.too_long} longer ones; "
            "increase lattice.max_offset or lattice.max_length"
        )
    record(recall, context)
    context.write_json(context.directory / "lattice.json", describe(summary))


def describe(summary: TableSummary) -> dict[str, Any]:
    """Return the content of `lattice.json`: the summary of the tables, and the fractions of dropped and of cut links."""
    values = asdict(summary) | {"vocabulary": summary.vocabulary.hex(), "links": summary.links.hex()}
    seen = summary.linked + summary.dropped
    return values | {"dropped_share": summary.dropped / seen, "cut_share": (summary.linked - summary.kept) / summary.linked}
