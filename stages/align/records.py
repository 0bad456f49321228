"""What an alignment tells of its passes: metrics while it runs, `align.json` and a table of the report when it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.fast_align.em import Pass
from stages.context import StepContext


def pass_record(told: Pass) -> dict[str, Any]:
    """One pass as plain data. `tension` is the one that it was made with."""
    return {
        "log_likelihood": told.log_likelihood,
        "perplexity": told.perplexity,
        "null_posterior": told.null_posterior,
        "feature": told.feature,
        "tensions": list(told.tensions),
    }


def fit_record(
    passes: Sequence[Mapping[str, Any]], *, tension: float, length_ratio: float, counts: Mapping[str, int]
) -> dict[str, Any]:
    """What `align.json` says of a direction. `counts`: target_words (of the explained side), empty, too_long, ..."""
    return {"tension": tension, "length_ratio": length_ratio, "passes": list(passes), **counts}


def report_pass(context: StepContext, number: int, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Metrics of pass `number` (from 0), by direction."""
    values = {}
    for direction, told in records.items():
        values[f"{direction}_perplexity"] = told["perplexity"]
        values[f"{direction}_log_likelihood"] = told["log_likelihood"]
        values[f"{direction}_null_posterior"] = told["null_posterior"]
        if told["tensions"]:
            values[f"{direction}_tension"] = told["tensions"][-1]
    context.metrics(number + 1, values)
