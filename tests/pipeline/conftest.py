"""The store of a whole run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.tiny_run import CONFIG, ROOT
from tests.shared import made_once


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store after one run. Tests must not change it."""
    return made_once(tmp_path_factory, "store", run)


def run(store: Path) -> None:
    """Make the tiny run in a store."""
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    command = [sys.executable, "-m", "pipeline", "run", CONFIG, "--in-process", "--set", f"store.path={store}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
