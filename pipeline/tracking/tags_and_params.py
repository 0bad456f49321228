"""The records of runs in MLflow, without secrets and within its limits: tags, parameters, descriptions, and texts as datasets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewstep.text.escape import escaped
from pipeline.run.run_directory import StepState
from pipeline.store.files import read_json
from pipeline.store.manifest import isa_levels
from pipeline.store.records import scores_of, step_directory
from pipeline.tracking.entries import Entry
from pipeline.urls import masked, masked_values

PARAM_CHARACTERS = 6000
TAG_CHARACTERS = 5000
NAME_CHARACTERS = 250


def parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a config by dotted name. Lists are values."""
    return {allowed_name(name)[:NAME_CHARACTERS]: value[:PARAM_CHARACTERS] for name, value in _leaves("", config)}


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), item)
    elif prefix:
        yield prefix, escaped(masked(value if isinstance(value, str) else json.dumps(masked_values(value), ensure_ascii=False)))


def allowed_name(name: str) -> str:
    """Return `name` with `_` for each character that MLflow does not allow in names of metrics and parameters."""
    return re.sub(r"[^\w\-./: ]", "_", name, flags=re.ASCII)


def source_tags(config_file: str, user: str | None, revision: str | None) -> dict[str, str]:
    """Return MLflow's tags of a run's source, the config, of its `user`, and of the commit of the code, where they are known."""
    commit = (revision or "").removesuffix("+")
    tags = {
        "source.name": config_file,
        "source.type": "LOCAL",
        "source.git.commit": commit if re.fullmatch(r"[0-9a-f]+", commit) else None,
        "user": user,
    }
    return {f"mlflow.{name}": value for name, value in tags.items() if value}


def step_tags(
    entry: Mapping[str, Any], step: StepState, manifest: Mapping[str, Any], directory: Path, *, hit: bool, source: str | None
) -> dict[str, str]:
    """Return the tags by which users find the MLflow run of a step.

    `source` is the MLflow run of the step that made the artifact of a `hit`.
    """
    tags = {
        "kind": "step",
        "stage": entry["stage"],
        "stage_version": str(entry["version"]),
        "fingerprint": entry["fingerprint"],
        "cache": "hit" if hit else "miss",
        "attempt": None if hit else str(len(step.attempts)),
        "origin_run": step.origin if hit else None,
        "source_run_id": source,
        "git_revision": manifest.get("git_revision"),
        "code_digest": manifest.get("code_digest"),
        "isa": ", ".join(isa_levels(manifest.get("environment", {}))),
        "error": step.error,
        **{f"signature.{allowed_name(name)}": signature for name, (_, signature) in scores_of(directory).items()},
    }
    return {f"fewstep.{name}": value for name, value in tags.items() if value}


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


CONTEXTS = {"train": "training", "validation": "validation"}
"""Contexts of texts by step of the stage `corpus`; other texts are test sets."""


@dataclass(frozen=True)
class Text:
    """A text of a run."""

    name: str
    digest: str
    """Fingerprint of its artifact."""
    source: str
    """Its artifact as JSON, relative to the store, so that it holds where the store is copied to."""
    profile: str
    """Its size as JSON."""
    context: str


def texts_of(store: Path, plan: Mapping[str, Mapping[str, Any]], finished: set[str], experiment: str) -> dict[str, Text]:
    """Return the finished texts of a run by the name of their step: `train`, `validation`, and the test sets."""
    found = {}
    for step, entry in plan.items():
        if entry["stage"] != "corpus" or step not in finished:
            continue
        name = step.partition(":")[2]
        sizes = read_json(step_directory(store, entry) / "text.json")
        found[name] = Text(
            f"{experiment}/{name}",
            entry["fingerprint"],
            json.dumps({"artifact": f"corpus/{entry['fingerprint']}"}),
            json.dumps({"rows": sizes.get("rows")}),
            CONTEXTS.get(name.partition("/")[0], "test"),
        )
    return found
