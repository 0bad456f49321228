"""Tags and parameters of MLflow runs, without secrets and within MLflow's limits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fewstep.text.escape import escaped
from pipeline.credentials import masked, masked_values
from pipeline.run.run_directory import StepState
from pipeline.store.manifest import isa_levels
from pipeline.store.records import scores_of

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
