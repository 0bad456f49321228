"""Fixtures of toy runs."""

from pathlib import Path

import pytest

from pipeline.run.run_directory import Run
from pipeline.store.artifacts import Store
from tests.pipeline.run.toys import CALLS, FAULTS


@pytest.fixture(autouse=True)
def _clean() -> None:
    CALLS.clear()
    FAULTS.clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "runs" / "demo-1")
    plan = [
        {"step": f"{stage}:x", "stage": stage, "version": 1, "fingerprint": stage * 2, "inputs": []}
        for stage in ("corpus", "train", "score")
    ]
    run.create({"run_id": "demo-1", "name": "demo", "config": {}, "plan": plan})
    run.heartbeat.touch()
    return run
