"""The content of `run.json` and of manifests in tests, and the config of a whole run in seconds."""

from pathlib import Path
from typing import Any

from pipeline.store.manifest import Manifest


def plan_entry(step: str, **values: Any) -> dict[str, Any]:
    """Return an entry of a plan; `values` replace what is made up."""
    stage = step.partition(":")[0]
    return {"step": step, "stage": stage, "version": 1, "fingerprint": stage * 2, "config": {}, "inputs": [], **values}


def run_spec(*plan: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return the spec of a run with this plan, for `Run.create`; `values` replace what is made up."""
    made_up = {"run_id": "demo-1", "name": "demo", "config": {}, "config_file": "demo.yaml", "store": "/store"}
    return {**made_up, "plan": list(plan), **values}


def manifest(step: str = "toy:a", fingerprint: str = "f" * 32, **values: Any) -> Manifest:
    """Return the manifest of a finished step; `values` replace what is made up."""
    empty: dict[str, Any] = {"config": {}, "inputs": {}, "environment": {}, "code_digest": "", "git_revision": "", "run_id": "r"}
    made_up = {"stage": step.partition(":")[0], "version": 1, "attempt": "1", "seconds": 0.0, "finished": 0.0}
    return Manifest(step=step, fingerprint=fingerprint, **{**empty, **made_up, **values})


ROOT = Path(__file__).resolve().parents[2]
CONFIG = str(Path(__file__).with_name("tiny.yaml"))
