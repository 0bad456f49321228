"""The part of the report on likelihoods: the perplexity of systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.shared.figures.drawing import Colours
from stages.shared.report_parts import Artifacts, Json, Part, read


def show(artifacts: Artifacts, colours: Colours) -> Part:
    """Return `likelihood.json` and the perplexity of each system."""
    found = read(artifacts, "likelihood.json")
    metrics = {
        text: {system: {"perplexity": perplexity(one)} for system, one in systems.items()} for text, systems in found.items()
    }
    return Part({"likelihood": found}, metrics)


def perplexity(found: Mapping[str, Any]) -> Json:
    """Return `likelihood.json` as a metric with `score` and `signature`."""
    left_out = sum(found["left_out"].values())
    rows = f"{found['rows'] - left_out}" + (f" of {found['rows']}" if left_out else "")
    return {
        "score": round(found["perplexity"], 4),
        "signature": f"sentences:{rows}|tokens:subwords+eos|vocabulary:{found['vocabulary']}",
    }
