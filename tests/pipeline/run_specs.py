"""The content of `run.json` in tests."""

from typing import Any


def plan_entry(step: str, **values: Any) -> dict[str, Any]:
    """Return an entry of a plan; `values` replace what is made up."""
    stage = step.partition(":")[0]
    return {"step": step, "stage": stage, "version": 1, "fingerprint": stage * 2, "config": {}, "inputs": [], **values}


def run_spec(*plan: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return the spec of a run with this plan, for `Run.create`; `values` replace what is made up."""
    made_up = {"run_id": "demo-1", "name": "demo", "config": {}, "config_file": "demo.yaml", "store": "/store"}
    return {**made_up, "plan": list(plan), **values}
