"""Run the align stage."""

from __future__ import annotations

from typing import Any

from stages.align import AlignConfig, AlignInputs
from stages.align.links import write_links
from stages.align.native import align_natively
from stages.align.text import Job
from stages.align.upstream import align_upstream
from stages.artifacts import Tokens
from stages.context import StepContext
from stages.errors import DataError, StageError
from stages.shared.shards import row_counts


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
