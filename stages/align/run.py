"""Run the align stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.symmetrize import symmetrize_arrays
from stages.align import AlignConfig, AlignInputs
from stages.align.native import align_natively
from stages.align.text import DIRECTIONS, Job, load
from stages.align.upstream import align_upstream
from stages.artifacts import Tokens
from stages.context import StepContext
from stages.errors import DataError, StageError
from stages.shared.shards import drop_shards_from, read_shard, row_counts, rows_of, shard_path, write_shard


def run(inputs: AlignInputs, config: AlignConfig, context: StepContext) -> None:
    """Write the links shard by shard, the fitted models and `align.json`.

    Equal inputs and config give equal bytes for any number of workers and threads. Raises DataError for text that cannot be
    aligned, StageError when the upstream program is missing or fails.
    """
    pieces = isinstance(inputs.bitext, Tokens)
    if pieces != (config.unit == "pieces"):
        raise StageError(f"align: unit {config.unit}: expected {'tokens' if pieces is False else 'text'}, got {inputs.bitext.path}")
    if config.engine == "fast_align" and not config.compatible:
        raise DataError(
            "alignment.compatible: expected true for engine fast_align, got false: the upstream program has no correct gradient; "
            "set it to true, or alignment.engine to native"
        )
    job = Job.of(inputs.bitext, config, context)
    fitted = align_natively(job, context) if config.engine == "native" else align_upstream(job, context)
    write_links(job, context)
    _describe(inputs, config, fitted, context)


def _describe(inputs: AlignInputs, config: AlignConfig, fitted: dict[str, Any], context: StepContext) -> None:
    rows = row_counts(context.directory)
    if rows != row_counts(inputs.bitext.path):
        raise StageError(f"{context.directory}: expected shards of links with the rows of the text, got {rows}; run again")
    context.write_json(
        context.directory / "align.json",
        {
            "rows": sum(rows), "shards": len(rows), "unit": config.unit, "engine": config.engine,
            "symmetrization": config.symmetrization, **fitted,
        },
    )  # fmt: skip


if TYPE_CHECKING:
    import pyarrow as pa


def write_links(job: Job, context: StepContext) -> None:
    """Symmetrise the links of the engine, shard by shard."""
    missing = [shard for shard in range(len(job.shards)) if not _is_written(job, shard)]
    for done, _ in enumerate(context.workers.map(make_writer, job, missing), 1):
        context.progress(len(job.shards) - len(missing) + done, len(job.shards), "shards of links")
    drop_shards_from(context.directory, len(job.shards))


def _is_written(job: Job, shard: int) -> bool:
    path = shard_path(job.context.directory, shard)
    return path.exists() and rows_of(path) == rows_of(job.shards[shard])


def make_writer(job: Job) -> Callable[[int], None]:
    """Return a function that symmetrises and writes one shard."""
    return partial(_write_shard, job)


def _write_shard(job: Job, shard: int) -> None:
    import pyarrow as pa

    (target_starts, forward), (source_starts, reverse) = (
        (load(job.links(direction, shard, "starts")), load(job.links(direction, shard, "sources"))) for direction in DIRECTIONS
    )
    starts, sources, targets = symmetrize_arrays(
        target_starts, forward, source_starts, reverse, job.config.symmetrization, threads=job.context.resources.threads
    )
    columns = {
        "id": read_shard(job.shards[shard])["id"],
        "forward": _lists(target_starts, forward),
        "reverse": _lists(source_starts, reverse),
        "link_sources": _lists(starts, sources),
        "link_targets": _lists(starts, targets),
    }
    write_shard(shard_path(job.context.directory, shard), pa.table(columns), job.context)


def _lists(starts: Any, values: Any) -> pa.Array:
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pa.array(values.astype(np.int16)))
