"""The store of a whole run."""

import os
from pathlib import Path
from unittest import mock

import pytest

from pipeline.__main__ import main
from tests.pipeline.run_specs import CONFIG
from tests.shared import made_once


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store after one run. Tests must not change it."""
    return made_once(tmp_path_factory, "store", run)


def run(store: Path) -> None:
    """Make the tiny run in a store."""
    with mock.patch.dict(os.environ):
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        assert main(["run", CONFIG, "--in-process", "--set", f"store.path={store}"]) == 0
