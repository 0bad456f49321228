"""What of a run is shown to others, in plain values: names, tags, parameters without secrets, and the memory of what was sent."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.run.history import StepState
from pipeline.run.records import read_json, scores_of
from pipeline.store.artifacts import write_atomically

MEMORY = "mlflow.json"
RUN = "run"
"""Key of the run itself among its steps."""
SCHEMA = 1
PARAM_CHARACTERS = 6000
TAG_CHARACTERS = 5000
NAME_CHARACTERS = 250
SECRET = r"password|token|secret|key|signature|credential|\bsig\b"
"""In the name of an option of a URL: what it says is nobody's business."""


@dataclass
class Memory:
    """`mlflow.json` of a run: per server and experiment the MLflow run of each step, and how much of its files that has."""

    path: Path
    data: dict[str, Any]
    here: dict[str, Any] = field(default_factory=dict)
    """The part about the server and experiment that are published to now."""

    @classmethod
    def load(cls, run_dir: Path, uri: str, experiment: str) -> Memory:
        """Read it, or begin it. `uri` carries no password."""
        memory = cls(run_dir / MEMORY, read_json(run_dir / MEMORY))
        if not memory.data:
            memory.data = {"schema": SCHEMA, "publication": secrets.token_hex(8), "servers": []}
        servers = memory.data["servers"]
        found = [s for s in servers if (s["uri"], s["experiment"]) == (uri, experiment)]
        memory.here = found[0] if found else {"uri": uri, "experiment": experiment, "steps": {}, "artifacts": {}}
        if not found:
            servers.append(memory.here)
            memory.save()
        return memory

    @property
    def publication(self) -> str:
        """A random id of this run directory, which tells its MLflow runs from those of any other."""
        return str(self.data["publication"])

    def step(self, key: str) -> dict[str, Any]:
        """{run_id, fingerprint, published, files: {name: {position, last: {metric: step}}}} of a step."""
        notes: dict[str, Any] = self.here["steps"].setdefault(key, {})
        return notes

    def start(self, key: str, run_id: str) -> None:
        """Remember the MLflow run of a step, before anything is sent to it; what an earlier one had does not count."""
        if self.step(key).get("run_id") != run_id:
            self.here["steps"][key] = {"run_id": run_id}
            self.save()

    def save(self) -> None:
        write_atomically(self.path, json.dumps(self.data, indent=1) + "\n", str(os.getpid()))


def run_of_origin(run_dir: Path, uri: str, fingerprint: str) -> str | None:
    """The MLflow run, on the same server, of the step that made an artifact; None when that was not published there."""
    for server in read_json(run_dir / MEMORY).get("servers", []):
        for notes in server["steps"].values() if server["uri"] == uri else ():
            if notes.get("fingerprint") == fingerprint:
                return str(notes["run_id"])
    return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def masked(text: str) -> str:
    """`text` without the user, password or token of any URI in it."""
    text = re.sub(r"(://)[^/\s]+@", r"\1***@", text)
    return re.sub(rf"([?&][^=&\s]*(?:{SECRET})[^=&\s]*=)[^&\s]+", r"\1***", text, flags=re.IGNORECASE)


def masked_values(value: Any) -> Any:
    """Plain JSON data with every string masked."""
    if isinstance(value, Mapping):
        return {key: masked_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_values(item) for item in value]
    return masked(value) if isinstance(value, str) else value


def parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """Dotted name -> value of every leaf of a config; lists are leaves."""
    return {allowed_name(name)[:NAME_CHARACTERS]: value[:PARAM_CHARACTERS] for name, value in _leaves("", config)}


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), item)
    elif prefix:
        yield prefix, masked(value if isinstance(value, str) else json.dumps(masked_values(value), ensure_ascii=False))


def allowed_name(name: str) -> str:
    """`name` with only the characters that MLflow takes in names of metrics and parameters."""
    return re.sub(r"[^\w\-./: ]", "_", name, flags=re.ASCII)


def step_tags(
    entry: Mapping[str, Any], step: StepState, manifest: Mapping[str, Any], directory: Path, *, hit: bool, source: str | None
) -> dict[str, str]:
    """What the MLflow run of a step is found by."""
    tags = {
        "stage": entry["stage"],
        "stage_version": str(entry["version"]),
        "fingerprint": entry["fingerprint"],
        "cache": "hit" if hit else "miss",
        "attempt": None if hit else str(len(step.attempts)),
        "origin_run": step.origin if hit else None,
        "source_run_id": source,
        "git_revision": manifest.get("git_revision"),
        "code_digest": manifest.get("code_digest"),
        "error": step.error,
        **{f"signature.{allowed_name(name)}": signature for name, (_, signature) in scores_of(directory).items()},
    }
    return {f"fewstep.{name}": value for name, value in tags.items() if value}
