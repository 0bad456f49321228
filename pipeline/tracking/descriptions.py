"""Descriptions of experiments, runs, entries and models, as MLflow shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.tracking.entries import Entry

EXPERIMENT = (
    "Runs of the fewstep pipeline. Each run has a child for each step (`tags.fewstep.kind = 'step'`) and for each system with one "
    "search (`tags.fewstep.kind = 'entry'`), which holds its scores and its speed: compare those."
)


def run_note(spec: Mapping[str, Any]) -> str:
    """Return the description of a run."""
    systems = spec["config"].get("systems", {})
    listed = f" of the systems {', '.join(systems)}" if systems else ""
    return f"A run of the pipeline with the config `{spec['name']}`{listed}. Results: `report.html` among the artifacts."


def entry_note(entry: Entry) -> str:
    """Return the description of an entry."""
    tags = entry.tags
    data = f", trained on {tags['fewstep.data']} data" if "fewstep.data" in tags else ""
    pair = f", {tags['fewstep.language_pair']}" if "fewstep.language_pair" in tags else ""
    return (
        f"The system `{entry.system}` (family {tags['fewstep.family']}{data}{pair}) with the search `{entry.search}`: scores, "
        "latency of single sentences in ms, and throughput in sentences a second. Metrics without a prefix are those on the test "
        f"set `{tags.get('fewstep.test', '')}`."
    )


def version_note(entry: Entry, metric: str, score: float, test: str) -> str:
    """Return the description of a registered version."""
    return f"`{entry.system}`, the best system of its run: {metric} {score:.2f} on `{test}` with the search `{entry.search}`."
