"""Statistics of the passes of an alignment: metrics during the step, and entries of `align.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.fast_align.em import Pass
from stages.context import StepContext


def pass_record(one: Pass) -> dict[str, Any]:
    """Return the statistics of a pass as plain data."""
    return {
        "log_likelihood": one.log_likelihood,
        "perplexity": one.perplexity,
        "null_posterior": one.null_posterior,
        "feature": one.feature,
        "tensions": list(one.tensions),
    }


def fit_record(
    passes: Sequence[Mapping[str, Any]], *, tension: float, length_ratio: float, counts: Mapping[str, int]
) -> dict[str, Any]:
    """Return the entry of a direction in `align.json`. `counts`: target_words (of the explained side), empty, too_long, ..."""
    return {"tension": tension, "length_ratio": length_ratio, "passes": list(passes), **counts}


def report_pass(context: StepContext, number: int, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Report the metrics of pass `number` (from 0), given by direction."""
    values = {}
    for direction, record in records.items():
        values[f"{direction}_perplexity"] = record["perplexity"]
        values[f"{direction}_log_likelihood"] = record["log_likelihood"]
        values[f"{direction}_null_posterior"] = record["null_posterior"]
        if record["tensions"]:
            values[f"{direction}_tension"] = record["tensions"][-1]
    context.metrics(number + 1, values)
