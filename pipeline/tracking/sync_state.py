"""The state of synchronisation between a run and MLflow, kept in the run's `mlflow.json`."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.store.files import read_json, write_atomically
from stages.errors import ArtifactError

STATE_FILE = "mlflow.json"
RUN = "run"
"""The key of the run itself, among those of its steps."""
SCHEMA = 1


@dataclass
class SyncState:
    """The content of `mlflow.json`: for each server and experiment, the MLflow run of each step and how much of it was sent."""

    path: Path
    data: dict[str, Any]
    current: dict[str, Any] = field(default_factory=dict)
    """The part about the current server and experiment: {uri, experiment, steps, artifacts}."""

    @classmethod
    def load(cls, run_dir: Path, uri: str, experiment: str) -> SyncState:
        """Read the state of a run, or create it. `uri` must not contain a password. Raises ArtifactError for a file of another
        shape."""
        state = cls(run_dir / STATE_FILE, read_json(run_dir / STATE_FILE))
        if not state.data:
            state.data = {"schema": SCHEMA, "publication": secrets.token_hex(8), "servers": []}
        if not isinstance(state.data.get("publication"), str) or _servers(state.data) != state.data.get("servers"):
            raise ArtifactError(
                f"{state.path}: expected what was sent to MLflow (publication and servers), got other values; remove the file to "
                "publish the run as a new one"
            )
        servers = state.data["servers"]
        found = [s for s in servers if (s["uri"], s["experiment"]) == (uri, experiment)]
        state.current = found[0] if found else {"uri": uri, "experiment": experiment, "steps": {}, "artifacts": {}}
        if not found:
            servers.append(state.current)
            state.save()
        return state

    @property
    def publication(self) -> str:
        """A random id of the run directory, by which its MLflow runs are found."""
        return str(self.data["publication"])

    def step(self, key: str) -> dict[str, Any]:
        """Return the state of a step: {run_id, fingerprint, published, files: {name: {position, last: {metric: step}}}}."""
        state: dict[str, Any] = self.current["steps"].setdefault(key, {})
        return state

    def set_run(self, key: str, run_id: str) -> None:
        """Save the MLflow run of a step before anything is sent to it. The state of another run of the step is discarded."""
        if self.step(key).get("run_id") != run_id:
            self.current["steps"][key] = {"run_id": run_id}
            self.save()

    def save(self) -> None:
        """Write `mlflow.json`."""
        write_atomically(self.path, json.dumps(self.data, indent=1) + "\n")


def run_of_artifact(run_dir: Path, uri: str, fingerprint: str) -> str | None:
    """Return the id of the MLflow run, on the server `uri`, of the step that made an artifact; None if it was not published."""
    for server in _servers(read_json(run_dir / STATE_FILE)):
        for step in server["steps"].values() if server["uri"] == uri else ():
            if step.get("fingerprint") == fingerprint:
                return str(step["run_id"])
    return None


def _servers(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the servers in the content of `mlflow.json` that have their shape."""
    found = data.get("servers")
    return [one for one in found if _is_server(one)] if isinstance(found, list) else []


def _is_server(value: object) -> bool:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("uri", "experiment")):
        return False
    steps = value.get("steps")
    return isinstance(value.get("artifacts"), dict) and isinstance(steps, dict) and all(isinstance(s, dict) for s in steps.values())
