"""Fixtures of toy runs."""

from pathlib import Path

import pytest

from pipeline.run.run_directory import Run
from pipeline.store.artifacts import Store
from tests.pipeline.run.toys import CALLS, FAULTS
from tests.pipeline.run_specs import plan_entry, run_spec


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
    run.create(run_spec(*(plan_entry(f"{stage}:x") for stage in ("corpus", "train", "score"))))
    run.heartbeat.touch()
    return run
